package farol_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// The tables are made from the program, and a test says when they are stale.
func TestSettingsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	const page = "docs/configuration.md"
	text := documents(t)[page]
	at := generatedTables.FindStringIndex(text)
	if at == nil {
		t.Fatalf("%s has no generated tables", page)
	}
	tables := blanked(text[at[0]:at[1]], codeSpan)
	plain(t, riddles(t), page, 1+strings.Count(text[:at[0]], "\n"), tables)
}

// texted returns the expressions of a node that people read, if there are any.
type texted func(ast.Node) []ast.Expr

// goTexts checks the texts of the program that a function finds in some of its
// files. Literals of one word, such as keys, are left out.
func goTexts(t *testing.T, within func(path string) bool, find texted) {
	t.Helper()
	list := riddles(t)
	checked := 0
	for _, s := range sources(t) {
		if s.isTest() || !within(s.path) {
			continue
		}
		files := token.NewFileSet()
		syntax, err := parser.ParseFile(files, s.path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			for _, text := range find(n) {
				for _, l := range literals(text) {
					checked++
					value, err := strconv.Unquote(l.Value)
					if err != nil {
						t.Fatal(err)
					}
					plain(t, list, s.path, files.Position(l.Pos()).Line, value)
				}
			}
			return true
		})
	}
	if checked < 20 {
		t.Errorf("only %d texts were found", checked)
	}
}

// literals are the strings of an expression, also those that are joined by +.
func literals(e ast.Expr) (list []*ast.BasicLit) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // which is visited by itself, if it makes a text
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, " ") {
				list = append(list, n)
			}
		}
		return true
	})
	return list
}

// called is the name of a function that is called, such as errors.New, or only
// the last part of one that is a method.
func called(n ast.Node) (name string, args []ast.Expr) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name, call.Args
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok {
			return of.Name + "." + f.Sel.Name, call.Args
		}
		return "." + f.Sel.Name, call.Args
	}
	return "", nil
}

var logCall = regexp.MustCompile(`\.(Debug|Info|Warn|Error|Log)(Context|Attrs)?$`)

func TestLogMessagesAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	goTexts(t, anywhere, func(n ast.Node) []ast.Expr {
		if name, args := called(n); logCall.MatchString(name) {
			return args
		}
		return nil
	})
}

// What an error says ends up in logs, notes and the ledger.
func TestErrorsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	goTexts(t, anywhere, func(n ast.Node) []ast.Expr {
		switch name, args := called(n); name {
		case "errors.New", "fmt.Errorf":
			return args[:1]
		}
		if field, ok := n.(*ast.KeyValueExpr); ok {
			if key, ok := field.Key.(*ast.Ident); ok && key.Name == "next" { // of a failure: the next step
				return []ast.Expr{field.Value}
			}
		}
		return nil
	})
}

// Help of commands is checked as it is printed; of metrics it is in fields of this
// name, and behind the name of the metric in calls.
func TestHelpOfMetricsIsInPlainEnglish(t *testing.T) {
	t.Parallel()
	goTexts(t, anywhere, func(n ast.Node) []ast.Expr {
		if field, ok := n.(*ast.KeyValueExpr); ok {
			if key, ok := field.Key.(*ast.Ident); ok && key.Name == "Help" {
				return []ast.Expr{field.Value}
			}
		}
		_, args := called(n)
		for i, arg := range args {
			if l, ok := arg.(*ast.BasicLit); ok && strings.HasPrefix(l.Value, `"farol_`) {
				return args[i+1:]
			}
		}
		return nil
	})
}

func anywhere(string) bool { return true }

// ofCommands says whether a file is of the commands, whose texts are mostly help.
func ofCommands(path string) bool {
	return strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "internal/commands/")
}

var statementOfSQL = regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|DELETE|ALTER|CREATE|DROP|FROM|WHERE|SET)\b`)

// sentence finds what else the program may print: a literal of several words that is
// no SQL.
func sentence(n ast.Node) []ast.Expr {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING || strings.Count(l.Value, " ") < 2 || statementOfSQL.MatchString(l.Value) {
		return nil
	}
	return []ast.Expr{l}
}

func TestTextsOfTheProgramAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	goTexts(t, func(path string) bool { return !ofCommands(path) }, sentence)
}

// files calls do with each file of the module that has one of some names, or the
// suffix of one.
func files(t *testing.T, suffixes []string, do func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(name, d)
		}
		for _, suffix := range suffixes {
			if !strings.HasSuffix(name, suffix) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			do(filepath.ToSlash(name), string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The program has these texts in files of their own: what each code means, and the
// document of the API.
func TestEmbeddedTextsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	checked := 0
	files(t, []string{"codes.txt", "openapi.json"}, func(name, text string) {
		checked++
		plain(t, list, name, 1, text)
	})
	if checked < 2 {
		t.Errorf("only %d files were found", checked)
	}
}

var (
	sqlComment = regexp.MustCompile(`(?m)--.*$`)
	sqlLiteral = regexp.MustCompile(`'(?:[^']|'')*'`)
)

// What the database refuses and explains is read in psql: messages of RAISE, their
// hints, comments on tables and columns, notes and reasons. All are literals of
// several words.
func TestSQLMessagesAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	checked := 0
	files(t, []string{".sql"}, func(name, text string) {
		text = blanked(text, sqlComment)
		for _, at := range sqlLiteral.FindAllStringIndex(text, -1) {
			if literal := text[at[0]:at[1]]; strings.Contains(literal, " ") {
				checked++
				plain(t, list, name, 1+strings.Count(text[:at[0]], "\n"), literal)
			}
		}
	})
	if checked < 100 {
		t.Errorf("only %d messages were found", checked)
	}
}

// Help is read before anything else, and often in a hurry. dev and demo of farol are
// those of farol-dev, which lies next to it.
func TestHelpIsInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	for _, program := range []struct {
		name, path string
		pages      int
	}{{"farol", testenv.Binary(t), 50}, {"farol-dev", testenv.DevBinary(t), 3}} {
		m := &manual{program: program.path, pages: map[string]string{}}
		var below func(command string)
		below = func(command string) {
			plain(t, list, strings.TrimSpace(program.name+" "+command)+" --help", 1, m.page(t, command))
			for _, name := range m.subcommands(t, command) {
				below(strings.TrimSpace(command + " " + name))
			}
		}
		below("")
		if len(m.pages) < program.pages {
			t.Errorf("only %d pages of help of %s were found", len(m.pages), program.name)
		}
	}
}

// Most are formats of what a command prints.
func TestTextsOfTheCommandsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	goTexts(t, ofCommands, sentence)
}
