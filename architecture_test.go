// Package farol_test checks what no single package can: which may import which.
package farol_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farol-preservation/farol"

// mayImport tells which of our packages each of our packages may import, all
// below them included. The longest path that has a rule counts. Tests may also
// import internal.
func mayImport() map[string][]string {
	top := []string{"bag", "claim", "fault", "format", "progress", "registry", "storage", "virus"}
	return map[string][]string{
		"bag":               nil,
		"fault":             nil,
		"format":            nil,
		"registry":          nil,
		"registry/fixity":   {"registry"},
		"registry/plans":    {"registry"},
		"registry/premis":   {"registry"},
		"registry/requests": {"registry"},
		"registry/upkeep":   {"registry", "registry/requests"},
		"migrations":        nil,
		"virus":             nil,
		"claim":             {"fault", "registry"},
		"storage":           {"fault", "registry"},
		"progress":          {"fault", "registry"},
		"pipeline":          top,
		"nsqcompat":         top,
		"explain":           {"claim", "fault", "internal/human", "progress", "registry"},
		"client":            nil,            // it is for programs of others
		"internal":          {"migrations"}, // the test environment brings databases up to date

		"internal/human":    nil,
		"internal/build":    nil,
		"internal/commands": {"internal/cli", "internal/connect", "internal/human", "internal/settings", "pipeline", "registry", "storage"},
		"internal/connect":  {"internal/build", "internal/cli", "internal/settings", "progress", "registry", "storage"},
		"internal/memory":   nil,
		"internal/monitor":  {"claim", "internal/cli", "internal/settings", "nsqcompat", "pipeline", "registry", "storage"},
		"internal/cli":      {"internal/human", "registry", "storage"},
		"internal/settings": {"bag", "claim", "internal/human", "pipeline", "storage", "virus"},
		"preflight":         append(top, "internal/human", "internal/memory", "internal/settings", "migrations"),
		"cmd":               append(top, "preflight", "explain", "internal", "migrations", "nsqcompat", "pipeline"),
	}
}

// mayUse tells which of our packages may import a library: whatever speaks to
// the outside is in one place. The stack of internal is made of such libraries.
func mayUse() map[string][]string {
	return map[string][]string{
		"github.com/aws/":            {"storage", "internal"},
		"github.com/redis/":          {"progress", "cmd", "internal", "preflight"},
		"github.com/jackc/pgx/":      {"claim", "registry", "migrations", "nsqcompat", "cmd", "internal", "preflight"},
		"database/sql":               {"migrations"},
		"github.com/nsqio/":          {"nsqcompat", "internal"},
		"github.com/richardlehane/":  {"format"},
		"github.com/versity/":        {"internal"},
		"github.com/spf13/cobra":     {"cmd", "internal/cli", "internal/commands", "internal/connect"},
		"github.com/caarlos0/env/":   {"cmd", "internal/connect", "internal/settings"},
		"github.com/pressly/goose/":  {"migrations"},
		"github.com/prometheus/":     {"cmd", "internal/monitor"},
		"github.com/compose-spec/":   nil, // tests only
		"pgregory.net/rapid":         nil,
		"github.com/google/go-cmp/":  nil,
		"github.com/rogpeppe/go-int": nil,
	}
}

// source is one Go file of the module.
type source struct {
	path    string // from the root, with slashes
	room    string // the longest part of the path that has a rule; or its first directory
	imports []string
	syntax  *ast.File
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(name, d)
		case filepath.Ext(name) != ".go" || !strings.ContainsRune(name, filepath.Separator):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(name), syntax: file}
		s.room = roomOf(s.path)
		for _, i := range file.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		list = append(list, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// roomOf is the rule's name for what lies at a path.
func roomOf(name string) string {
	room, _, _ := strings.Cut(name, "/")
	for rule := range mayImport() {
		if len(rule) > len(room) && in(name, rule) {
			room = rule
		}
	}
	return room
}

// in tells whether a path is one of these, or lies below one.
func in(name string, places ...string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		return name == place || strings.HasPrefix(name, place+"/")
	})
}

// skip passes over directories that hold no package of this module.
func skip(name string, d fs.DirEntry) error {
	if name == "." {
		return nil
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "bin" {
		return fs.SkipDir
	}
	return nil
}

// The direction is what lets a package be read, tested and replaced alone.
func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	t.Parallel()
	rules := mayImport()
	for _, s := range sources(t) {
		allowed, known := rules[s.room]
		if !known && !s.isTest() {
			t.Errorf("%s: no rule says what %s may import", s.path, s.room)
		}
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/")
			if ours && roomOf(below) != s.room && !s.isTest() && !in(below, allowed...) {
				t.Errorf("%s imports %s; %s may import %q of ours", s.path, imported, s.room, allowed)
			}
		}
	}
}

// A test may use the packages that its own may use, and the real servers.
func TestTestsReachNoHigherThanTheirPackage(t *testing.T) {
	t.Parallel()
	rules := mayImport()
	for _, s := range sources(t) {
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/")
			allowed, ruled := rules[s.room]
			if !ours || !ruled || !s.isTest() || roomOf(below) == s.room || in(below, allowed...) {
				continue
			}
			if in(below, "cmd", "pipeline", "nsqcompat") {
				t.Errorf("%s imports %s, which is above %s", s.path, imported, s.room)
			}
		}
	}
}

func TestEachLibraryIsUsedInItsPlace(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		for _, imported := range s.imports {
			for library, places := range mayUse() {
				if strings.HasPrefix(imported, library) && !in(s.path, places...) {
					t.Errorf("%s imports %s; only %q may", s.path, imported, places)
				}
			}
		}
	}
}

// What a package does is decided by its arguments; cmd alone knows settings,
// which internal/connect reads for its commands. The
// test environment has no caller who could tell it, and the width of a terminal and
// what Go reads itself are no settings.
func TestOnlyCmdReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() || in(s.path, "cmd", "internal/testenv", "internal/cli", "internal/connect", "internal/memory") {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				pkg, _ := call.X.(*ast.Ident)
				if pkg != nil && pkg.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, call.Sel.Name) {
					t.Errorf("%s calls os.%s", s.path, call.Sel.Name)
				}
			}
			return true
		})
	}
}

// Whether this test looks at anything at all.
func TestEveryPackageIsLookedAt(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.room] = true
	}
	for room := range mayImport() {
		if !seen[room] {
			t.Errorf("no file of %s was found", room)
		}
	}
}
