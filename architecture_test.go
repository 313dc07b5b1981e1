// Package farol_test checks what no single package can: which may import which.
package farol_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farol-preservation/farol"

// mayImport tells which of our packages each of our packages may import, all
// below it included. Tests may also import internal; only they and cmd may.
func mayImport() map[string][]string {
	top := []string{"bag", "claim", "fault", "format", "progress", "registry", "storage", "virus"}
	return map[string][]string{
		"bag":        nil,
		"fault":      nil,
		"format":     nil,
		"registry":   nil,
		"migrations": nil,
		"virus":      nil,
		"claim":      {"fault", "registry"},
		"storage":    {"fault", "registry"},
		"progress":   {"fault", "registry"},
		"pipeline":   top,
		"nsqcompat":  top,
		"client":     nil,            // it is for programs of others
		"internal":   {"migrations"}, // the test environment brings databases up to date
		"cmd":        append(top, "internal", "migrations", "nsqcompat", "pipeline"),
	}
}

// inPipeline tells which other packages of pipeline each of them may import, the
// lowest first. What is beside each other knows nothing of the other.
func inPipeline() map[string][]string {
	base := []string{"cause", "copies", "lists", "retry"}
	return map[string][]string{
		"retry":   nil,
		"cause":   nil,
		"copies":  {"cause", "retry"},
		"lists":   {"cause", "copies"},
		"interim": {"cause", "lists"},
		"":        {"cause", "copies", "retry"}, // the runner knows no stage
		"restore": append(base, ""),
		"remove":  append(base, ""),
		"ingest":  append(base, "interim", ""),
		"steps":   {"ingest", "remove", "restore", ""},
		"fixity":  base,
		"upkeep":  append(base, "interim", "restore"),
	}
}

// mayUse tells which of our packages may import a library: whatever speaks to
// the outside is in one place. The stack of internal is made of such libraries.
func mayUse() map[string][]string {
	return map[string][]string{
		"github.com/aws/":            {"storage", "internal"},
		"github.com/redis/":          {"progress", "cmd", "internal"},
		"github.com/jackc/pgx/":      {"claim", "registry", "migrations", "nsqcompat", "cmd", "internal"},
		"database/sql":               {"migrations"},
		"github.com/nsqio/":          {"nsqcompat", "internal"},
		"github.com/richardlehane/":  {"format"},
		"github.com/versity/":        {"internal"},
		"github.com/spf13/cobra":     {"cmd"},
		"github.com/caarlos0/env/":   {"cmd"},
		"github.com/pressly/goose/":  {"migrations"},
		"github.com/prometheus/":     {"cmd"},
		"github.com/compose-spec/":   nil, // tests only
		"pgregory.net/rapid":         nil,
		"github.com/google/go-cmp/":  nil,
		"github.com/rogpeppe/go-int": nil,
	}
}

// source is one Go file of the module.
type source struct {
	path    string // from the root, with slashes
	top     string // its first directory
	imports []string
	syntax  *ast.File
}

// isTest tells whether only tests use the file.
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || path.Dir(s.path) == "pipeline/pipelinetest"
}

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
		s.top, _, _ = strings.Cut(s.path, "/")
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
		allowed, known := rules[s.top]
		if !known && !s.isTest() {
			t.Errorf("%s: no rule says what %s may import", s.path, s.top)
		}
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/")
			top, _, _ := strings.Cut(below, "/")
			if ours && top != s.top && !s.isTest() && !slices.Contains(allowed, top) {
				t.Errorf("%s imports %s; %s may import %q of ours", s.path, imported, s.top, allowed)
			}
		}
	}
}

// The runner is below the steps that it is given, and no stage knows another's room.
func TestPackagesOfThePipelineImportOnlyWhatIsBelowThem(t *testing.T) {
	t.Parallel()
	rules := inPipeline()
	for _, s := range sources(t) {
		if s.top != "pipeline" || s.isTest() {
			continue
		}
		own := strings.TrimPrefix(strings.TrimPrefix(path.Dir(s.path), "pipeline"), "/")
		allowed, known := rules[own]
		if !known {
			t.Errorf("%s: no rule says what pipeline/%s may import", s.path, own)
		}
		for _, imported := range s.imports {
			below, ours := strings.CutPrefix(imported, module+"/pipeline")
			if below = strings.TrimPrefix(below, "/"); ours && !slices.Contains(allowed, below) {
				t.Errorf("%s imports pipeline/%s; pipeline/%s may import %q of pipeline", s.path, below, own, allowed)
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
			top, _, _ := strings.Cut(below, "/")
			_, ruled := rules[s.top]
			if !ours || !ruled || !s.isTest() || top == s.top || slices.Contains(rules[s.top], top) {
				continue
			}
			if top == "cmd" || top == "pipeline" || top == "nsqcompat" {
				t.Errorf("%s imports %s, which is above %s", s.path, imported, s.top)
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
				if strings.HasPrefix(imported, library) && !slices.Contains(places, s.top) {
					t.Errorf("%s imports %s; only %q may", s.path, imported, places)
				}
			}
		}
	}
}

// What a package does is decided by its arguments; cmd alone knows settings. The
// test environment has no caller who could tell it.
func TestOnlyCmdReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() || s.top == "cmd" || path.Dir(s.path) == "internal/testenv" {
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
		seen[s.top] = true
	}
	for top := range mayImport() {
		if !seen[top] {
			t.Errorf("no file of %s was found", top)
		}
	}
}
