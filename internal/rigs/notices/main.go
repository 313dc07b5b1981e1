// Command notices prints the licences of all that is linked into farol: of each
// module, and of directories in it that have their own. If you pass the program on,
// pass these on too.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(write(context.Background(), out, "./cmd/..."), out.Flush()); err != nil {
		slog.Error("cannot write the notices", "err", err)
		os.Exit(1)
	}
}

// linked is a package in the program, as go list describes it.
type linked struct {
	Dir, Root string
	Standard  bool
	GoFiles   []string
	Module    *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// notices are texts, each with those that it is the licence of.
type notices map[string][]string

// write prints the notices of a program, as it is released.
func write(ctx context.Context, w io.Writer, program string) error {
	all := notices{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			packages, err := packagesOf(ctx, program, system, arch)
			if err != nil {
				return err
			}
			for _, p := range packages {
				if err := all.add(p); err != nil {
					return err
				}
			}
		}
	}
	const rule = "================================================================================"
	fmt.Fprintf(w, "Farol is licensed as LICENSE says. These are the licences and notices of what is\nlinked into it, each below its modules. `make notices` writes this\nfile.\n")
	for _, text := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(strings.Compare(all[a][0], all[b][0]), strings.Compare(a, b)) }) {
		if _, err := fmt.Fprintf(w, "\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(all[text], "\n"), rule, text); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

func packagesOf(ctx context.Context, program, system, arch string) (list []linked, err error) {
	c := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Root,Standard,GoFiles,Module", program)
	c.Env = append(c.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linked
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the output of go list: %w", err)
		}
		list = append(list, p)
	}
}

// fileName is what files with licences and notices are called.
var fileName = regexp.MustCompile(`(?i)^(un)?licen[sc]e|^(notice|copying|copyright|patents|authors)(\.|$)`)

// add takes in what is said of a package: by its directory and those above it in its
// module, or else by its sources and the page about the module.
func (n notices) add(p linked) error {
	switch {
	case p.Standard:
		return n.files(p.Root, "The Go standard library", "LICENSE", "PATENTS")
	case p.Module == nil || p.Module.Main:
		return nil
	}
	owner, top := p.Module.Path+" "+p.Module.Version, p.Module.Dir
	found := false
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for licences: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() && fileName.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				found = true
				if err := n.files(dir, owner+strings.TrimPrefix(dir, top), e.Name()); err != nil {
					return err
				}
			}
		}
		if dir == top {
			break
		}
	}
	if found {
		return nil
	}
	return n.sources(p, owner)
}

func (n notices) files(dir, owner string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read a licence: %w", err)
		}
		n.take(string(text), owner+" ("+name+")")
	}
	return nil
}

func (n notices) take(text, owner string) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if !slices.Contains(n[text], owner) {
		n[text] = append(n[text], owner)
		slices.Sort(n[text])
	}
}

// sources is for modules without a file: their terms are at the head of each source,
// or on the page about them.
func (n notices) sources(p linked, owner string) error {
	said := false
	names := append([]string{}, p.GoFiles...)
	for i, name := range names {
		names[i] = filepath.Join(p.Dir, name)
	}
	for _, name := range append(names, filepath.Join(p.Module.Dir, "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("look for the terms of %s: %w", owner, err)
		}
		head, _, _ := strings.Cut(string(text), "\npackage ")
		if regexp.MustCompile(`(?i)licen[sc]e|permission is|redistribution`).MatchString(head) {
			said = true
			n.take(head, owner+" ("+filepath.Base(name)+")")
		}
	}
	if !said {
		return fmt.Errorf("%s does not say under which terms it may be passed on", owner)
	}
	return nil
}
