// Package platform_test checks what Farol ships for platforms: the Helm chart, its output
// and the templates of CloudFormation, with the libraries and schemas that read them.
package platform_test

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// file reads a file by its path from the root of the repository.
func file(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// refused are those of the names that no Farol reads, or whose value is wrong where it has to be
// one of a few.
func refused(t *testing.T, environ map[string]string) []string {
	t.Helper()
	var wrong []string
	_, err := settings.Load(environ, settings.Log{})
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	known := knownSettings()
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		if !known[strings.TrimSuffix(name, "_FILE")] {
			wrong = append(wrong, name+" is no setting")
		}
	}
	return wrong
}

// knownSettings are the names under which Farol reads its settings today, and TMPDIR.
func knownSettings() map[string]bool {
	known := map[string]bool{"TMPDIR": true}
	add := func(prefix string, block any) {
		for _, f := range settings.FieldsOf(prefix, block) {
			known[f.Name] = true
		}
	}
	for _, block := range settings.SettingBlocks() {
		add("", block)
	}
	for _, target := range storage.Targets() {
		add(settings.TargetPrefix(target.Name), &settings.Target{})
	}
	return known
}

// start starts farol with these settings, until the test ends.
func start(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	farol := exec.CommandContext(t.Context(), testenv.Binary(t), args...)
	farol.Env, farol.Stderr = append(environ, "TMPDIR="+t.TempDir()), t.Output()
	must.Do(t, farol.Start())
	t.Cleanup(func() { farol.Wait() }) //nolint:errcheck // it was killed, unless the test has waited
	return farol
}

// freeAddress is one that a process may listen on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	must.Do(t, listener.Close())
	return listener.Addr().String()
}
