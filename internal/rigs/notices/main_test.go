package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Who changes what is linked changes the file as well.
func TestNoticesAreThoseOfWhatIsLinked(t *testing.T) {
	t.Parallel()
	var want bytes.Buffer
	if err := write(t.Context(), &want, "../../../cmd/..."); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", "..", "go.mod")); err != nil { // a result of another go.mod is not reused
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "..", "THIRD_PARTY_NOTICES"))
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("THIRD_PARTY_NOTICES is not of what go.mod links (%v): run `make notices`", err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "../../../cmd/...")
	list.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	modules, err := list.Output()
	if err != nil || len(modules) == 0 {
		t.Fatal(err)
	}
	for module := range strings.FieldsFuncSeq(string(modules), func(r rune) bool { return r == '\n' }) {
		if !strings.Contains(string(got), "\n"+module) {
			t.Errorf("there is nothing of %s", module)
		}
	}
	for _, text := range []string{"The Go standard library (LICENSE)", "Copyright (c) Ian F. Darwin 1986-1995", "AWS SDK for Go\nCopyright 2015 Amazon.com"} {
		if !strings.Contains(string(got), text) {
			t.Errorf("there is no %q", text)
		}
	}
}

// A module that says nothing about its terms is not passed on unnoticed.
func TestModuleWithoutTermsIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.go": "// Hello.\npackage a\n", "README.md": "# A\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := linked{Dir: dir, GoFiles: []string{"a.go"}}
	p.Module = &struct {
		Path, Version, Dir string
		Main               bool
	}{Path: "example.org/a", Version: "v1.0.0", Dir: dir}
	all := notices{}
	if err := all.add(p); err == nil || len(all) != 0 {
		t.Errorf("add = %v, with %v", err, all)
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENCE"), []byte("Do what you like.\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all.add(p); err != nil || len(all["Do what you like."]) != 1 {
		t.Errorf("add = %v, with %v", err, all)
	}
}
