package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/storage"
)

// The settings are documented from what the program reads. After a change:
// go test ./cmd/farol -run Configuration -update.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
	path := filepath.Join("..", "..", "docs", "configuration.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	want := before + begin + settingsTables() + end + after
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("%s is not what the program reads: run this test with -update\n%s", path, diff)
	}
}

func settingsTables() string {
	var b strings.Builder
	b.WriteString("\n| name | default | meaning | used by |\n|---|---|---|---|\n")
	for _, block := range []struct {
		of    any
		users string
	}{
		{&databaseConfig{}, "all but `validate`, `version`, `dev`, `demo`"},
		{&redisConfig{}, "`work`, `schedule`, `item show`, `item files`, `item watch`, `item explain`, `janitor`, `doctor`, `check`"},
		{&s3Config{}, "`work`, `schedule`, `identify`, `read-buckets`, `institution add --create-buckets`, `janitor`, `doctor`, `check`, `item files`"},
		{&stagingConfig{}, "`work`, `schedule`, `janitor`, `doctor`, `check`, `item files`"},
		{&keepConfig{}, "`work`, `schedule`, `janitor`, `check`, `item files`"},
		{&nsqConfig{}, "`mirror`"},
		{&workConfig{}, "`work`"},
		{&identifyConfig{}, "`work`, `identify`, `check`"},
		{&virusConfig{}, "`work`, `check`"},
		{&janitorConfig{}, "`schedule`, `janitor`, `doctor`; the interval: `schedule`"},
		{&profilesConfig{}, "`work`, `validate`"},
		{&bagsConfig{}, "`work`, `validate`, `check`"},
		{&poolsConfig{}, "`work`"},
		{&fixityConfig{}, "`work`, `fixity`"},
		{&repairConfig{}, "`repair`; `work` if it repairs by itself"},
		{&pullConfig{}, "`serve`"},
		{&httpConfig{}, "`work`, `schedule`, `read-buckets`, `mirror`, `serve`"},
		{&readConfig{}, "`schedule`, `read-buckets`"},
		{&scheduleConfig{}, "`schedule`"},
		{&logConfig{}, "`work`, `schedule`, `read-buckets`, `mirror`, `serve`, `janitor`, `doctor`"},
	} {
		for _, f := range fieldsOf("", block.of) {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, defaultOf(f), meaning(f), block.users)
		}
	}

	b.WriteString("\n## Preservation targets\n\n| `<NAME>` | default bucket | its old name | provider | region | storage class |\n|---|---|---|---|---|---|\n")
	for _, spec := range storage.Targets() {
		name := strings.TrimSuffix(strings.TrimPrefix(targetPrefix(spec.Name), "FAROL_TARGET_"), "_")
		class := "the bucket's"
		if spec.StorageClass != "" {
			class = "`" + spec.StorageClass + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s | %s | %s |\n", name, spec.Bucket, spec.EnvVar, spec.Provider, spec.Region, class)
	}
	b.WriteString("\n| name | default | meaning |\n|---|---|---|\n")
	for _, f := range fieldsOf("FAROL_TARGET_<NAME>_", &targetConfig{}) {
		byDefault := defaultOf(f)
		if f.byDefault == "" {
			byDefault = "as above"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, byDefault, meaning(f))
	}

	stagesTable(&b)
	b.WriteString("\n")
	return b.String()
}

func stagesTable(b *strings.Builder) {
	b.WriteString("\n## Stages\n\n| stage | `<W>` | S3 | Redis | registry | CPU | memory | buffer | attempts | cap | without heartbeats |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range oldWorkers() {
		stage, capped, d := w.step(), "none", w.uses.byDefault()
		if stage == "" {
			stage = "(fixity)"
		}
		if d.Cap > 0 {
			capped = strconv.Itoa(d.Cap)
		}
		fmt.Fprintf(b, "| %s | `%s` | %v | %v | %v | %v | %v | %d | %d | %s | %v / %v |\n", stage, strings.Join(w.names, "` or `"),
			w.uses.S3, w.uses.Redis, w.uses.Registry, w.uses.CPU, w.uses.Memory, d.Buffer, d.MaxAttempts, capped, d.UnrenewedTimeout, d.UnrenewedLease)
	}
}

func defaultOf(f field) string {
	switch {
	case f.required:
		return "required"
	case f.byDefault == "":
		return "none"
	}
	return "`" + f.byDefault + "`"
}

func meaning(f field) string {
	text := f.doc + "; " + f.allowed()
	if f.fromFile() {
		text += "; or `" + f.name + fileSuffix + "`, the path of a file with it"
	}
	if f.old != "" {
		text += "; old name `" + f.old + "`"
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Each alert and each code has a section.
func TestRunbookHasASectionForEach(t *testing.T) {
	t.Parallel()
	sections := map[string]bool{}
	for line := range strings.Lines(page(t, "docs", "runbook.md")) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			sections[title] = true
		}
	}
	db := testenv.Database(t)
	names := func(sql string) []string {
		rows, _ := db.Query(t.Context(), sql)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(list) < 6 {
			t.Fatalf("%s: %v, %v", sql, list, err)
		}
		return list
	}
	const quoted = `SELECT (regexp_matches(pg_get_constraintdef(oid), '''([A-Z][A-Za-z ]+)''', 'g'))[1] FROM pg_constraint WHERE `
	alerts := names(quoted + `conname = 'alerts_type_check'`)
	statuses := names(quoted + `contypid = 'work_status'::regtype`)
	wanted := slices.Concat(alerts, statuses, []string{"Service Held", "held", "bag-gone", "sent-back"})
	for _, service := range []string{
		fault.Database, fault.Redis, fault.Bucket("x"), fault.Scanner, fault.Disk, fault.Memory, fault.Identifier, fault.Settings,
	} {
		class, _ := strings.CutSuffix((&fault.Error{Service: service, Kind: fault.Denied}).Code(), "-denied")
		wanted = append(wanted, class)
	}
	for _, k := range []fault.Kind{
		fault.Unavailable, fault.Overloaded, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly, fault.Skewed, fault.WrongAnswer,
	} {
		wanted = append(wanted, string(k))
	}
	for _, name := range wanted {
		if !sections[name] {
			t.Errorf("docs/runbook.md has no section %q", name)
		}
	}
}
