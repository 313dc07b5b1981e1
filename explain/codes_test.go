package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/fault"
)

// codesInUse are those that the code base gives to findings, errors and items,
// each with where.
func codesInUse(t *testing.T) map[string]string {
	t.Helper()
	codes := map[string]string{}
	inSQL := regexp.MustCompile(`(?:error_code|m\.code|m\.end_code)\s*:?=(?:\s*'[a-z-]+'|\s*CASE .*)|CASE .* AS code`)
	given := regexp.MustCompile(`(?:=|THEN|ELSE)\s*'([a-z-]+)'`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.Base(filepath.Dir(path))
		switch {
		case strings.HasSuffix(path, ".sql"), strings.HasSuffix(path, ".go") && dir == "claim":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, assignment := range inSQL.FindAllString(string(text), -1) {
				for _, m := range given.FindAllStringSubmatch(assignment, -1) {
					codes[m[1]] = path
				}
			}
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, code := range codesOf(n, dir) {
				codes[code] = path
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		"record-refused", "storage-digest", "target-missing", "virus-scanner", // of earlier versions, which may be on record
	} {
		codes[code] = "the record"
	}
	for service, kinds := range faultKinds() {
		for _, k := range kinds {
			codes[(&fault.Error{Service: service, Kind: k}).Code()] = "fault"
		}
	}
	delete(codes, "")
	return codes
}

// faultKinds are what can be wrong with each service.
func faultKinds() map[string][]fault.Kind {
	server := []fault.Kind{fault.Unavailable, fault.Overloaded, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly, fault.WrongAnswer, fault.Refused}
	return map[string][]fault.Kind{
		fault.Bucket("any"): append(slices.Clone(server), fault.Skewed),
		fault.Redis:         server,
		fault.Database:      server,
		fault.Scanner:       {fault.Unavailable, fault.WrongAnswer},
		fault.Disk:          {fault.Unavailable, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly},
		fault.Memory:        {fault.Full},
		fault.Identifier:    {fault.Unavailable, fault.Denied, fault.Missing},
		fault.Settings:      {fault.Missing},
	}
}

// codesOf are the codes that a piece of code names: in claim.Fatal("code", and its
// kin, as the constants of bag/finding and code… of claim, as the field code, and as what
// claim.Code returns.
func codesOf(n ast.Node, dir string) (codes []string) {
	text := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				codes = append(codes, s)
			}
		}
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			if of, ok := f.X.(*ast.Ident); ok && of.Name == "claim" {
				name = f.Sel.Name
			}
		case *ast.Ident:
			if dir == "claim" {
				name = f.Name
			}
		}
		if slices.Contains([]string{"Fatal", "Transient", "Suspend", "Cancel", "SendBackAs", "SnoozeAs"}, name) && len(n.Args) > 1 {
			text(n.Args[0])
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if (dir == "finding" || dir == "claim" && strings.HasPrefix(name.Name, "code")) && i < len(n.Values) {
				text(n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "code" && dir == "claim" {
			text(n.Value)
		}
	case *ast.FuncDecl:
		if dir == "claim" && n.Name.Name == "Code" {
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
					text(r.Results[0])
				}
				return true
			})
		}
	}
	return codes
}

// Anyone who reads a code anywhere gets to know whose fault it is, and what to do.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	used, explained := codesInUse(t), Verdicts()
	for _, known := range []string{
		"invalid-bag", "storage-denied", "bag-gone", "bag-changed", "bad-copy", "sent-back", "transient", "timeout", "lost", "released", "snoozed",
		"panic", "superseded", "by-hand", "oom", "killed", "lease-expired", "unreachable", "digest-mismatch", "not-a-tar",
	} {
		if used[known] == "" {
			t.Errorf("the search does not find %s", known)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(used)) {
		v, ok := explained[code]
		if !ok {
			t.Errorf("%s, in %s, has no row in codes.txt", code, used[code])
			continue
		}
		if Faults()[v.Fault] == "" || v.Fault == "unknown" || !strings.HasSuffix(v.Means, ".") || !strings.HasSuffix(v.Todo, ".") {
			t.Errorf("the row of %s is not complete: %+v", code, v)
		}
	}
	for code := range explained {
		if used[code] == "" {
			t.Errorf("codes.txt explains %s, which nothing uses", code)
		}
	}
	rows := 0
	for line := range strings.Lines(codesText) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rows++
		}
	}
	if rows != len(explained) {
		t.Errorf("codes.txt has %d rows, of which %d can be read", rows, len(explained))
	}
}

// Only codes that the documents name may be printed.
func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	pages := ""
	for _, name := range []string{"validation-codes.md", "administrators.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	for code := range Verdicts() {
		if !strings.Contains(pages, "`"+code+"`") {
			t.Errorf("neither docs/validation-codes.md nor docs/administrators.md has `%s`", code)
		}
	}
}
