package validate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A disk that fails is not the bag's fault: nothing was found out.
func TestReadingThatFailsIsNoVerdict(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	_, err := named("-").read(t.Context(), iotest.ErrReader(broken), bag.ReadOptions{})
	if f := cli.FailureOf(err); !errors.Is(err, broken) || f.Code != cli.ExitUsage || f.Next == "" {
		t.Errorf("read = %v, reported as %+v", err, f)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = named("-").read(ctx, strings.NewReader(strings.Repeat("x", 1<<20)), bag.ReadOptions{})
	if f := cli.FailureOf(err); f.Code != cli.ExitUsage || f.Error() != "interrupted" {
		t.Errorf("read = %v, reported as %+v", err, f)
	}
}

// The name is judged as Receive judges it, and alone: the bag is not read.
func TestValidateJudgesTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, legal := range map[string]bool{"..tar": false, "a\x1bb.tar": false, "good.tar": true} {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("no tar"), 0o600))
		c := Command()
		c.SilenceUsage, c.SilenceErrors = true, true // as the program's root has it
		var out strings.Builder
		c.SetOut(&out)
		c.SetArgs([]string{path, "--json"})
		err := c.Execute()
		want := map[bool]string{false: "illegal-name", true: "not-a-tar"}[legal]
		var v bag.Verdict
		if e := json.Unmarshal([]byte(out.String()), &v); e != nil || len(v.Errors) != 1 || v.Errors[0].Code != want || v.Valid || cli.FailureOf(err).Code != cli.ExitFailed {
			t.Errorf("%q: %v, %s", name, err, &out)
		}
	}
}

// reading calls a function when it is first read from.
type reading struct {
	io.Reader

	first func()
}

func (r reading) Read(p []byte) (int, error) {
	r.first()
	return r.Reader.Read(p)
}

// Who interrupts the judging of many bags sees what was found out before.
func TestInterruptedValidateShowsWhatIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "first.tar"), []byte("no tar"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	c := Command()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out strings.Builder
	c.SetOut(&out)
	c.SetIn(reading{strings.NewReader(strings.Repeat("x", 8<<20)), stop})
	c.SetArgs([]string{dir, "-", filepath.Join(dir, "nowhere.tar")})
	f := cli.FailureOf(c.ExecuteContext(ctx))
	if f.Code != cli.ExitUsage || f.Error() != "interrupted" {
		t.Errorf("it ends with %+v", f)
	}
	for _, want := range []string{"first.tar  not valid", "not-a-tar: ", "3 bags: 1 not valid, 2 not judged\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "nowhere") {
		t.Errorf("it went on:\n%s", &out)
	}
}

// A bag with a thousand faults takes its share of the text that is kept, and no more.
func TestManyBadBagsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	var bad bag.Verdict
	for range 1000 {
		bad.Errors = append(bad.Errors, bag.Finding{Code: "file-missing", Path: "data/x", Message: strings.Repeat("x", 500)})
	}
	many, v := manyVerdicts{results: map[string]int{}}, validation{out: io.Discard}
	for range 100 {
		must.Do(t, v.add(&many, "bad.tar", bad, nil))
	}
	if n := many.details.Len(); n < mostDetails || n > mostDetails+1<<20 || many.results["not valid"] != 100 {
		t.Errorf("%d bytes are kept of %v", n, many.results)
	}
}
