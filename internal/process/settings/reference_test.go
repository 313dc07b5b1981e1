package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/reference"
	"github.com/farol-preservation/farol/storage"
)

// The settings are documented from what the program reads. After a change:
// go test ./internal/process/settings -run Configuration -update.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
	path := filepath.Join("..", "..", "..", "docs", "configuration.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	want := before + begin + strings.ReplaceAll(settingsTables(), "|  |", "| |") + end + after
	reference.Fresh(t, path, want)
	for _, block := range SettingBlocks() {
		for _, f := range FieldsOf("", block) {
			if !strings.Contains(want, "| `"+f.Name+"` |") {
				t.Errorf("%T is in no table: %s", block, f.Name)
			}
		}
	}
}

func settingsTables() string {
	var b strings.Builder
	b.WriteString("\n| name | type | default | meaning |\n|---|---|---|---|\n")
	for _, block := range []struct {
		of    any
		users string
	}{
		{&Database{}, "all but `validate`, `version`, `dev`, `demo`"},
		{&Web{}, "`serve`; the address and the URL: `user`, `dev`"},
		{&Site{}, "`serve`, `schedule`, `mail`, `user`, `check`, and commands that create buckets"},
		{&Remote{}, "commands that read records or decide about them, in place of the database"},
		{&Redis{}, "`work`, `schedule`, `janitor`, `doctor`, `check`, commands that show an item; if set: `serve`"},
		{&S3{}, "`work`, `schedule`, `identify`, `read-buckets`, `janitor`, `doctor`, `check`, `item files`, commands that create buckets; if set: `serve`"},
		{&Staging{}, "`work`, `schedule`, `janitor`, `doctor`, `check`, `bucket create`, `item files`; if S3 is set up: `serve`"},
		{&Keep{}, "`work`, `schedule`, `janitor`, `check`, `bucket create`, `item files`"},
		{&NSQ{}, "`mirror`; the HTTP addresses, if set: `serve`"},
		{&Work{}, "`work`"},
		{&Identify{}, "`work`, `identify`, `check`"},
		{&Virus{}, "`work`, `check`"},
		{&Janitor{}, "`schedule`, `janitor`, `doctor`; the interval: `schedule`"},
		{&Profiles{}, "`work`, `validate`, `serve`"},
		{&Bags{}, "`work`, `validate`, `check`, `serve`"},
		{&Pools{}, "`work`"},
		{&ScaleIn{}, "`work`"},
		{&Fixity{}, "`work`, `fixity`; the days: `schedule`; days and attempts: `serve`"},
		{&Repair{}, "`repair`; `work` if it repairs by itself; the bucket, if set: `bucket create`"},
		{&Pull{}, "`serve`"},
		{&HTTP{}, "`work`, `schedule`, `read-buckets`, `mirror`, `serve`"},
		{&Read{}, "`schedule`, `read-buckets`"},
		{&Schedule{}, "`schedule`"},
		{&Mail{}, "`schedule`, `mail test`"},
		{&Log{}, "`work`, `schedule`, `read-buckets`, `mirror`, `serve`, `janitor`, `doctor`"},
		{&Traces{}, "`work`, `schedule`, `read-buckets`, `mirror`, `serve`; see [Traces](operators.md#traces)"},
	} {
		fmt.Fprintf(&b, "| **%s** | | | |\n", block.users)
		for _, f := range FieldsOf("", block.of) {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, escaped(f.kind()), defaultOf(f), meaning(f))
		}
	}

	b.WriteString("\n## Preservation targets\n\nOld names of the buckets are `BUCKET_<NAME>`.\n\n| `<NAME>` | default bucket | provider | region | storage class |\n|---|---|---|---|---|\n")
	for _, spec := range storage.Targets() {
		name := strings.TrimSuffix(strings.TrimPrefix(TargetPrefix(spec.Name), "FAROL_TARGET_"), "_")
		class := ""
		if spec.StorageClass != "" {
			class = "`" + spec.StorageClass + "`"
		}
		if spec.EnvVar != "BUCKET_"+name {
			class += " (old name: `" + spec.EnvVar + "`)"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", name, spec.Bucket, spec.Provider, spec.Region, class)
	}
	b.WriteString("\n| name | type | default | meaning |\n|---|---|---|---|\n")
	for _, f := range FieldsOf("FAROL_TARGET_<NAME>_", &Target{}) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, escaped(f.kind()), defaultOf(f), meaning(f))
	}

	b.WriteString("\n## OpenID providers\n\nUsed by `serve --web`. `<NAME>` is a name of your choice, such as `TEST_EDU`; the button says test-edu.\n\n" +
		"| name | type | default | meaning |\n|---|---|---|---|\n")
	for _, f := range FieldsOf("FAROL_OIDC_<NAME>_", &OIDC{}) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, escaped(f.kind()), defaultOf(f), meaning(f))
	}

	stagesTable(&b)
	b.WriteString("\n")
	return b.String()
}

func stagesTable(b *strings.Builder) {
	b.WriteString("\n## Stages\n\n| stage | `<W>` | S3 | Redis | registry | CPU | memory | buffer | attempts | cap |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range OldWorkers() {
		stage, capped, d := w.step(), "", w.uses.byDefault()
		if stage == "" {
			stage = "(fixity)"
		}
		if d.Cap > 0 {
			capped = strconv.Itoa(d.Cap)
		}
		fmt.Fprintf(b, "| %s | `%s` | %v | %v | %v | %v | %v | %d | %d | %s |\n", stage, strings.Join(w.names, "` or `"),
			w.uses.S3, w.uses.Redis, w.uses.Registry, w.uses.CPU, w.uses.Memory, d.Buffer, d.MaxAttempts, capped)
	}
}

func defaultOf(f Field) string {
	switch {
	case f.required:
		return "required"
	case f.byDefault == "":
		return ""
	}
	return "`" + f.byDefault + "`"
}

// meaning is the sentence of the setting, with the other names that it may have.
func meaning(f Field) string {
	text := f.doc + "."
	if f.old != "" {
		text += " Old name: `" + f.old + "`."
	}
	return escaped(text)
}

// escaped keeps a | from ending a cell.
func escaped(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// Every meaning begins with a noun or a verb, and says nothing of how one looks it up.
func TestMeaningsAreSentences(t *testing.T) {
	t.Parallel()
	riddle := regexp.MustCompile(`(?i)\b(how long|how often|what|whether|whoever|such as that|so long|for ever|anew|beside|its secret)\b`)
	blocks := append(SettingBlocks(), &Target{}, &OIDC{})
	for _, block := range blocks {
		for _, f := range FieldsOf("", block) {
			if first := f.doc[0]; first < 'A' || first > 'Z' || strings.HasSuffix(f.doc, ".") {
				t.Errorf("%s: %q is no sentence without its end", f.Name, f.doc)
			}
			if found := riddle.FindString(f.doc); found != "" {
				t.Errorf("%s: %q has %q", f.Name, f.doc, found)
			}
		}
	}
}

// kind is the type of the setting for the reference.
func (f Field) kind() string {
	switch f.Value.Interface().(type) {
	case time.Duration:
		if f.least > 0 {
			return "duration above 0"
		}
		return "duration"
	case Size:
		return fmt.Sprintf("size from %v", Size(f.least))
	case int:
		return fmt.Sprintf("number from %d", f.least)
	case storage.Secret:
		return "secret: " + bare(f.is)
	}
	if len(f.oneOf) > 0 {
		return "`" + strings.Join(f.oneOf, "`, `") + "`"
	}
	return bare(f.is)
}

// bare is a noun without its article.
func bare(noun string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(noun, "the "), "an "), "a ")
}

func (l level) String() string { return [...]string{"low", "medium", "high"}[l] }
