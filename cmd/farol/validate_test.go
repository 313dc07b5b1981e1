package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farol-preservation/farol/bag"
)

// A disk that fails is not the bag's fault: nothing was found out.
func TestReadingThatFailsIsNoVerdict(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	_, err := readBag(t.Context(), "-", iotest.ErrReader(broken), 0)
	if f := asFailure(err); !errors.Is(err, broken) || f.code != exitUsage || f.next == "" {
		t.Errorf("readBag = %v, told as %+v", err, f)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = readBag(ctx, "-", strings.NewReader(strings.Repeat("x", 1<<20)), 0)
	if f := asFailure(err); f.code != exitUsage || f.Error() != "interrupted" {
		t.Errorf("readBag = %v, told as %+v", err, f)
	}
}

// The name is judged as Receive judges it, and alone: the bag is not read.
func TestValidateJudgesTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, legal := range map[string]bool{"..tar": false, "a\x1bb.tar": false, "good.tar": true} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("no tar"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := validateCommand()
		c.SilenceUsage, c.SilenceErrors = true, true // as the program's root has it
		var out strings.Builder
		c.SetOut(&out)
		c.SetArgs([]string{path, "--json"})
		err := c.Execute()
		want := map[bool]string{false: "illegal-name", true: "not-a-tar"}[legal]
		var v bag.Verdict
		if e := json.Unmarshal([]byte(out.String()), &v); e != nil || len(v.Errors) != 1 || v.Errors[0].Code != want || v.Valid || asFailure(err).code != exitFailed {
			t.Errorf("%q: %v, %s", name, err, &out)
		}
	}
}
