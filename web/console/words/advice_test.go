package words

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/reply"
)

// ofGo are the codes that no rule of the schema raises.
func ofGo() []string { return []string{"no-user"} }

// repeatables is the SQL of the schema's functions, without what the schema says by mail.
func repeatables(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../../migrations/repeatable/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	texts := map[string]string{}
	for _, name := range files {
		content := must.Get(os.ReadFile(name))(t)
		if !strings.Contains(name, "mail") {
			texts[filepath.Base(name)] = regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(string(content), "")
		}
	}
	return texts
}

// A refusal whose hint is in SQL has a code: without one, the other channels would show the
// hint. No text of the schema names a command, and each code has its next step everywhere.
func TestEachRefusalHasItsNextStepInEachChannel(t *testing.T) {
	t.Parallel()
	raises := regexp.MustCompile(`(?s)RAISE EXCEPTION.*?;\n`)
	sql := regexp.MustCompile(`HINT = [^;]*?(SELECT |UPDATE |SET |have_again|again\()`)
	named := regexp.MustCompile(`(?:CONSTRAINT = |code := |THEN |ELSE )'([a-z]+(?:-[a-z]+)+)'`)
	found := map[string]bool{}
	for name, text := range repeatables(t) {
		for _, raised := range raises.FindAllString(text, -1) {
			said := strings.ReplaceAll(raised, "(SELECT ", "") // which is a query within the function
			if sql.MatchString(said) && !strings.Contains(raised, "CONSTRAINT = ") {
				t.Errorf("%s has a hint in SQL, and no code:\n%s", name, raised)
			}
		}
		for _, m := range regexp.MustCompile(`refused\([^;]*SELECT [^;]*;`).FindAllString(text, -1) {
			t.Errorf("%s has a hint in SQL, and no code:\n%s", name, m)
		}
		if m := regexp.MustCompile("'[^'\n]*\\bfarol (work|resume|pause|requeue|restore|delete|item|stage|plan) [^\n]*").FindString(text); m != "" {
			t.Errorf("%s names a command, which psql has not: %s", name, m)
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if _, known := advices()[m[1]]; known || strings.Contains(m[0], "CONSTRAINT") || strings.Contains(m[0], "code :=") {
				found[m[1]] = true
			}
		}
	}
	delete(found, "by-hand") // the code of an attempt
	delete(found, "stage-removed")
	delete(found, "memory-need")
	if len(found) < 15 {
		t.Errorf("only %d codes were found", len(found))
	}
	for _, code := range ofGo() {
		found[code] = true
	}
	args := map[string]string{"item": "7", "stage": "Copy To Staging", "kind": "object", "name": "test.edu/ann's letters", "object": "3", "user": "ann@test.edu", "after": "item 8 is in the queue for it"}
	for code := range found {
		inChannels(t, code, args)
	}
	for code := range advices() {
		if !found[code] {
			t.Errorf("nothing raises %s", code)
		}
	}
}

// inChannels fails the test if a channel has no next step for a code, or one in the language
// of another.
func inChannels(t *testing.T, code string, args map[string]string) {
	t.Helper()
	link := AdviceOn(&reply.Problem{Rule: code, Args: args})
	if link == nil {
		t.Errorf("%s: the console has no link", code)
		return
	}
	said := map[string]string{"a command": human.Command(code, args), "an operation": ops.Call(code, args), "a link": link.Text + " " + link.Path}
	foreign := map[string][]string{"a command": {"SELECT ", "/api/"}, "an operation": {"SELECT ", "farol "}, "a link": {"SELECT ", "farol ", "/api/", "When that has ended, /"}}
	for channel, text := range said {
		if text == "" || strings.ContainsAny(text, "{}") || slices.ContainsFunc(foreign[channel], func(word string) bool { return strings.Contains(text, word) }) {
			t.Errorf("%s as %s: %q", code, channel, text)
		}
	}
}

// What the rules refuse is said without the language of psql, and psql has a statement.
func TestRefusalsOfTheDatabaseAreNeutral(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's')`)
	exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT 1, 'Ingest', 'Receive', 'bag.tar', 'b', 'e', 1, now()`)
	for sql, code := range map[string]string{
		`SELECT requeue(1, 'Store')`:                                "not-at-stage",
		`SELECT release(1)`:                                         "item-not-running",
		`UPDATE work_items SET attempt = 2 WHERE id = 1`:            "written-by-queue",
		`UPDATE work_items SET claim_token = 99999999 WHERE id = 1`: "written-by-queue",
		`UPDATE work_items SET name = 'x.tar' WHERE id = 1`:         "item-is-one-upload",
		`DELETE FROM work_items WHERE id = 1`:                       "permanent-item",
		`TRUNCATE stage_settings`:                                   "permanent-records",
		`SELECT remove_stage('Store')`:                              "stage-kept",
		`DELETE FROM stage_names`:                                   "stages-by-function",
		`SELECT lift_pause(7)`:                                      "no-pause",
		`SELECT requeue_where('id / 0 = 1')`:                        "condition-failed",
	} {
		_, err := db.Exec(t.Context(), sql)
		no, ok := registry.Refusal(err).(*registry.Refused) //nolint:errorlint // as Refusal returns it
		if !ok || no.Code != code {
			t.Errorf("%s: %v, want the code %s", sql, err, code)
			continue
		}
		if strings.Contains(no.Error(), "SELECT ") || strings.Contains(no.Error(), "farol ") {
			t.Errorf("%s: %q is in the language of a channel", sql, no)
		}
		inChannels(t, code, no.Args)
	}
}

// What an explanation advises is a page of the console. Only what runs on a machine is a command.
func TestExplanationsLeadToPages(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../../../explain/*.go")
	sources = append(sources, "../../../explain/codes.txt")
	seen := 0
	for _, path := range sources {
		text, readErr := os.ReadFile(path)
		if err = errors.Join(err, readErr); strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, found := range regexp.MustCompile("`(farol [^`]*)`").FindAllStringSubmatch(string(text), -1) {
			command := strings.NewReplacer("{id}", "7", "{other}", "7", "{item}", "7", "%[1]d", "7", "%d", "7", `" + id + "`, "7", `"+id+"`, "7", "%s", "Store", "%[1]s", "Store").Replace(found[1])
			page, ok := inPlaceOf(command)
			program := slices.Contains([]string{"work", "schedule", "doctor", "validate", "check"}, strings.Fields(command)[1])
			if ok == program || ok && (page.Text == "" || !strings.HasPrefix(page.Path, "/") || strings.ContainsAny(page.Text+page.Path, "{}")) {
				t.Errorf("%s names `%s`, which is %+v in the console, found: %t", path, command, page, ok)
			}
			seen++
		}
	}
	if err != nil || seen < 20 {
		t.Errorf("%d commands found, %v", seen, err)
	}
}
