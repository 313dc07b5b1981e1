// Command soak runs the soak tests at their whole length, where "make test" runs a
// twentieth, and prints a table in Markdown of what they did. A soak test is one that
// calls testenv.Soaked.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func main() {
	only := flag.String("run", "", "run only the soak tests whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	tests, err := find(".")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "| test | what it did | in |\n|---|---|--:|")
	var failed []string
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		pattern := "^(" + strings.Join(tests[pkg], "|") + ")$"
		if only != "" {
			pattern = only
		}
		rows, err := soak(ctx, pkg, pattern)
		if err != nil {
			failed = append(failed, pkg)
			fmt.Fprintf(os.Stderr, "soak: %s: %v\n", pkg, err)
		}
		for _, row := range rows {
			fmt.Fprintln(os.Stdout, row)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("tests failed in %s", strings.Join(failed, ", "))
	}
	return nil
}

// find returns the names of the soak tests below root, by package.
func find(root string) (map[string][]string, error) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && soaks(f) {
				pkg := "./" + filepath.ToSlash(filepath.Dir(path))
				tests[pkg] = append(tests[pkg], f.Name.Name)
			}
		}
		return nil
	})
	return tests, err
}

func soaks(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		found = found || ok && call.Sel.Name == "Soaked"
		return !found
	})
	return found
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
	Elapsed              float64 // seconds
}

// soak runs tests of a package and returns the rows of the table.
func soak(ctx context.Context, pkg, pattern string) (rows []string, err error) {
	const longest = 6 * time.Hour
	cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-race", "-json", "-count=1", "-timeout", longest.String(), "-run", pattern, pkg)
	cmd.Env, cmd.Stderr = append(cmd.Environ(), testenv.SoakWhole, "CGO_ENABLED=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	did, said := map[string]string{}, map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the build says something
		}
		said[e.Test] += e.Output
		if _, what, ok := strings.Cut(e.Output, testenv.SoakLine); ok {
			did[e.Test] = strings.TrimSpace(what)
		}
		if what, ok := did[e.Test]; ok && e.Action == "pass" {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %.0f s |", e.Test, what, e.Elapsed))
		}
		if e.Action == "fail" && e.Test != "" {
			err = errors.Join(err, errors.New(said[e.Test]))
		}
	}
	return rows, errors.Join(err, cmd.Wait())
}
