package farol_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// documents returns the text of every Markdown file of the module by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(name, d)
		case filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		docs[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 10 {
		t.Fatalf("only %d documents were found", len(docs))
	}
	return docs
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	codeSpan = regexp.MustCompile("`([^`]+)`")
	link     = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// blocks returns the fenced blocks of a language.
func blocks(text, language string) (list []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			list = append(list, m[2])
		}
	}
	return list
}

// spans returns the code spans outside of all blocks.
func spans(text string) (list []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		list = append(list, m[1])
	}
	return list
}

// anchors are what links may name in a document, as forges make them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	checked := 0
	for name, text := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if anchor != "" && !anchors(docs[target])[anchor] {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	}
	if checked == 0 {
		t.Error("no link was found")
	}
}

// manual is what the program says of its own commands.
type manual struct {
	program string
	mu      sync.Mutex
	pages   map[string]string
}

// page is the help of a command, such as "item show".
func (m *manual) page(t *testing.T, command string) string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if page, ok := m.pages[command]; ok {
		return page
	}
	out, err := exec.CommandContext(t.Context(), m.program, append(strings.Fields(command), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("farol %s --help: %v\n%s", command, err, out)
	}
	m.pages[command] = string(out)
	return string(out)
}

var subcommand = regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)

func (m *manual) subcommands(t *testing.T, command string) (names []string) {
	t.Helper()
	_, list, _ := strings.Cut(m.page(t, command), "\nUsage:\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	for _, found := range subcommand.FindAllStringSubmatch(list, -1) {
		if !strings.HasPrefix(found[1], "farol") { // of usage and examples
			names = append(names, found[1])
		}
	}
	return names
}

// check says what is wrong with a command line that begins behind "farol".
func (m *manual) check(t *testing.T, words []string) string {
	t.Helper()
	command := ""
	for {
		below := m.subcommands(t, command)
		if len(below) == 0 || len(words) == 0 || strings.HasPrefix(words[0], "-") {
			break
		}
		if !slices.Contains(below, words[0]) && regexp.MustCompile(`(?m)^ +farol `+command+` [A-Z]`).MatchString(m.page(t, command)) {
			break // such as farol export KIND, which has a list of its own
		}
		if !slices.Contains(below, words[0]) {
			return fmt.Sprintf("`farol %s` has no command %q", command, words[0])
		}
		command = strings.TrimSpace(command + " " + words[0])
		words = words[1:]
	}
	for _, word := range words {
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "--") && !strings.Contains(m.page(t, command), flag+" ") {
			return fmt.Sprintf("`farol %s` has no flag %s", command, flag)
		}
	}
	return ""
}

// commandLine finds a call of the program, by its name or by way of compose.
var commandLine = regexp.MustCompile(`^(?:(?:bin/|\./)?farol|docker compose run --rm cli) +([^#|>&;]+)`)

// A document that is followed to the letter works.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	testenv.DevBinary(t) // next to farol, whose dev and demo start it
	m := &manual{program: testenv.Binary(t), pages: map[string]string{}}
	checked := 0
	for name, text := range documents(t) {
		lines := spans(text)
		for _, language := range []string{"sh", ""} {
			for _, block := range blocks(text, language) {
				lines = append(lines, strings.Split(block, "\n")...)
			}
		}
		for _, line := range lines {
			found := commandLine.FindStringSubmatch(strings.TrimSpace(line))
			if found == nil {
				continue
			}
			checked++
			if wrong := m.check(t, strings.Fields(found[1])); wrong != "" {
				t.Errorf("%s: %s: %s", name, line, wrong)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found", checked)
	}
}

var testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]+)`")

func TestTestsNamedInDocumentsExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	files := sources(t)
	own, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range own { // which are no sources of a package
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, source{path: name, syntax: file})
	}
	for _, s := range files {
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() {
				exist[f.Name.Name] = true
			}
		}
	}
	checked := 0
	for name, text := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			checked++
			if !exist[m[1]] {
				t.Errorf("%s names %s, which is no test", name, m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d tests are named", checked)
	}
}

var (
	setting         = regexp.MustCompile(`\bFAROL_[A-Z0-9_]*[A-Z0-9]\b`)
	providerSetting = regexp.MustCompile(`^FAROL_OIDC_[A-Z_]+?_(ISSUER|CLIENT_ID|CLIENT_SECRET|INSTITUTION|DOMAINS|TRUST_MFA)(?:_FILE)?$`)

	targetSetting = regexp.MustCompile(`^FAROL_TARGET_[A-Z_]+?_(BUCKET|ENDPOINT|REGION|CA_FILE|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|PROFILE|ROLE_ARN|EXTERNAL_ID|ENCRYPTION|KMS_KEY|STORAGE_CLASS|CHECKSUM|INVENTORY)(_FILE)?$`)
)

// docs/configuration.md is made from the program, so what is in it exists. The
// other settings are those of docker-compose.yml.
func TestSettingsInDocumentsExist(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	compose, err := os.ReadFile("deploy/env.example")
	if err != nil {
		t.Fatal(err)
	}
	_, generated, _ := strings.Cut(docs["docs/configuration.md"], "<!-- generated: begin -->")
	generated, _, _ = strings.Cut(generated, "<!-- generated: end -->")
	worker, err := os.ReadFile("examples/worker.sh") // which has settings of its own
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"FAROL_TARGET": true, "FAROL_OIDC": true} // as in FAROL_TARGET_…
	for _, name := range setting.FindAllString(generated+string(compose)+string(worker), -1) {
		known[name] = true
	}
	if len(known) < 15 {
		t.Fatalf("only %d settings are known", len(known))
	}
	for doc, text := range docs {
		for _, name := range setting.FindAllString(text, -1) {
			if m := targetSetting.FindStringSubmatch(name); m != nil && strings.Contains(generated, "FAROL_TARGET_<NAME>_"+m[1]) {
				continue
			}
			if m := providerSetting.FindStringSubmatch(name); m != nil && strings.Contains(generated, "`FAROL_OIDC_<NAME>_"+m[1]+"`") {
				continue
			}
			if !known[name] && !known[strings.TrimSuffix(name, "_FILE")] { // each may be in a file
				t.Errorf("%s names %s, which is no setting", doc, name)
			}
		}
	}
}

// aService makes a service known, as the first worker does.
const aService = `SELECT report_service('w', 'redis', 'ok', '', '', '', NULL, false, '[]', '')`

// Each statement is run on a database without items: the functions of the schema
// may say that there is no such item, and nothing else may go wrong.
func TestSQLInDocumentsRuns(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	if _, err := db.Exec(t.Context(), aService); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, text := range documents(t) {
		for _, block := range blocks(text, "sql") {
			for statement := range strings.SplitSeq(block, ";\n") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				checked++
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					return try(t.Context(), tx, statement)
				})
				if !errors.Is(err, errTried) {
					t.Errorf("%s: %v\n%s", name, err, statement)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d statements were found", checked)
	}
}

// The page that administrators go by works for them as it stands, on items in all
// states.
func TestSQLForAdministratorsWorksForThem(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	states, err := os.ReadFile("cmd/farol/testdata/psql/states.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), string(states)+";"+aService); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, block := range blocks(documents(t)["docs/sql.md"], "sql") {
		role := "SET LOCAL ROLE farol_admin"
		if strings.HasPrefix(block, "-- As the owner") {
			role = "SET LOCAL ROLE NONE"
		}
		for statement := range strings.SplitSeq(block, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			checked++
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), role); err != nil {
					return err
				}
				answer, err := tx.Exec(t.Context(), statement)
				if err == nil && answer.Update() && answer.RowsAffected() != 1 {
					err = fmt.Errorf("it changes %d items or stages, want 1", answer.RowsAffected())
				}
				return errors.Join(err, errTried)
			})
			if err.Error() != errTried.Error() {
				t.Errorf("%v\n%s", err, statement)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d statements were found", checked)
	}
}

// What administrators may use is documented: each function, and each column of
// each view or that they may change.
func TestSQLForAdministratorsNamesAllThatTheyMayUse(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	rows, _ := db.Query(t.Context(), `
		SELECT p.proname || '(' FROM pg_proc p, aclexplode(p.proacl) a WHERE a.grantee = 'farol_admin'::regrole
		UNION SELECT table_name::text || '.' || column_name FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name IN ('queue_depth', 'running', 'needs_review', 'failed', 'outcomes', 'workers')
		UNION SELECT table_name::text || '.' || column_name FROM information_schema.column_privileges
			WHERE grantee = 'farol_admin' AND privilege_type = 'UPDATE'
		UNION SELECT table_name::text FROM information_schema.table_privileges WHERE grantee = 'farol_admin'`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 80 {
		t.Fatalf("administrators may use %d things, %v", len(names), err)
	}
	page := strings.Join(spans(documents(t)["docs/sql.md"]+documents(t)["docs/schema.md"]), " ")
	for _, name := range names {
		_, column, isColumn := strings.Cut(name, ".")
		if !isColumn {
			column = name
		}
		if !regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(column)).MatchString(page) {
			t.Errorf("neither docs/sql.md nor docs/schema.md names %s", name)
		}
	}
}

// errTried takes back what a statement has done.
var errTried = errors.New("the statement runs")

func try(ctx context.Context, tx pgx.Tx, statement string) error {
	_, err := tx.Exec(ctx, statement)
	var pg *pgconn.PgError
	if err == nil || errors.As(err, &pg) && pg.Code == "P0002" { // there is no item 7
		return errTried
	}
	return err
}
