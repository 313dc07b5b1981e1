package farol_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// riddle is a word that texts for people do not use.
type riddle struct {
	word    *regexp.Regexp
	say     string
	allowed *regexp.Regexp // phrases in which it is plain; nil if there are none
}

// phrases matches any of a list, separated by commas, as whole words and across
// the ends of lines.
func phrases(list string) *regexp.Regexp {
	var alternatives []string
	for phrase := range strings.SplitSeq(list, ",") {
		words := strings.Fields(phrase)
		for i, word := range words {
			words[i] = regexp.QuoteMeta(word)
		}
		alternatives = append(alternatives, strings.Join(words, `\s+`))
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(alternatives, "|") + `)\b`)
}

// riddles reads the list, which is of the form: forms | say | allowed.
func riddles(t *testing.T) (list []riddle) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "plain-english.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) < 2 || len(columns) > 3 {
			t.Fatalf("%q has %d columns", line, len(columns))
		}
		r := riddle{word: phrases(columns[0]), say: strings.TrimSpace(columns[1])}
		if len(columns) == 3 {
			r.allowed = phrases(columns[2])
		}
		list = append(list, r)
	}
	if len(list) < 30 {
		t.Fatalf("the list has only %d words", len(list))
	}
	return list
}

var inLine = regexp.MustCompile(`[^\n]`)

// blanked hides what a pattern finds, and keeps the lines as they are counted.
func blanked(text string, pattern *regexp.Regexp) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		return inLine.ReplaceAllString(found, " ")
	})
}

// plain reports each listed word of a text, by its line. The first has the number
// that is given.
func plain(t *testing.T, list []riddle, place string, line int, text string) {
	t.Helper()
	for _, r := range list {
		searched := text
		if r.allowed != nil {
			searched = blanked(text, r.allowed)
		}
		for _, at := range r.word.FindAllStringIndex(searched, -1) {
			t.Errorf("%s:%d: %q: say %s", place, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]], r.say)
		}
	}
}

var (
	generatedTables = regexp.MustCompile(`(?s)<!-- generated: begin -->.*?<!-- generated: end -->`)
	linkTarget      = regexp.MustCompile(`\]\([^)\s]+\)`)
	indentedCode    = regexp.MustCompile(`(?m)^(?:    |\t).*$`)
)

// prose is what a document says in words: no code, no addresses, no tables that
// are made from the program, which are checked where the program has them.
func prose(text string) string {
	for _, pattern := range []*regexp.Regexp{fence, indentedCode, codeSpan, linkTarget, generatedTables} {
		text = blanked(text, pattern)
	}
	return text
}

func TestDocumentsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	for name, text := range documents(t) {
		plain(t, list, name, 1, prose(text))
	}
}

// A person who is woken by an alert reads no other text first.
func TestAlertsAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	for name, shown := range map[string]*regexp.Regexp{
		"deploy/prometheus/farol-rules.yml": regexp.MustCompile(`(?m)^ +(?:summary|description): (.*)$`),
		"deploy/grafana/farol.json":         regexp.MustCompile(`"(?:title|description|legendFormat)": "((?:[^"\\]|\\.)*)"`),
	} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		found := shown.FindAllStringSubmatchIndex(text, -1)
		for _, at := range found {
			plain(t, list, name, 1+strings.Count(text[:at[2]], "\n"), text[at[2]:at[3]])
		}
		if len(found) < 20 {
			t.Errorf("%s has only %d texts", name, len(found))
		}
	}
}

var hashComment = regexp.MustCompile(`(?m)(?:^|\s)#+ (.*)$|"""(?s:.*?)"""`)

// What people copy and adapt has comments, which they read.
func TestExamplesAndSettingsFilesAreInPlainEnglish(t *testing.T) {
	t.Parallel()
	list := riddles(t)
	names, err := filepath.Glob("examples/*")
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, "deploy/env.example", "deploy/postgres/roles.sh", "deploy/prometheus/farol-rules.yml", "docker-compose.yml")
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		comments := hashComment.FindAllStringIndex(text, -1)
		if len(comments) == 0 {
			t.Errorf("%s has no comments", name)
		}
		for _, at := range comments {
			plain(t, list, name, 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]])
		}
	}
}
