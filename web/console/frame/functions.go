package frame

import (
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// functions are those that templates use. What they are given is escaped by the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"text": words.Text, "cut": words.Cut, "bytes": func(n any) words.Bytes { return words.Bytes(words.Whole(n)) }, "number": func(n any) string { return words.Number(words.Whole(n)) },
		"intime": record.InTime, "long": words.Long, "seconds": words.Seconds, "status": words.StatusOf, "lower": words.Lower, "sentence": words.Sentence, "field": func(name string) string { return strings.ReplaceAll(name, "_", " ") },
		"key": newKey, "link": words.LinkTo, "esc": url.PathEscape, "deref": words.Deref, "list": func(v ...any) []any { return v }, "json": words.AsJSON,
		"may":  func(s *screen, needs string) bool { return s.visit.Caller.Holds(permission.Permission(needs)) },
		"when": when, "day": day, "table": words.TableOf, "has": slices.Contains[[]string], "add": func(a, b int) int { return a + b },
		"waits": func(d record.DeletionRequest) bool { return d.Waits(time.Now()) }, "dict": words.Dict, "stagename": words.StageName, "stagepath": words.StagePath, "rough": func(n float64) string { return words.Rough(words.Duration(n)) }, "counted": func(n any, one, many string) string { return words.Counted(words.Whole(n), one, many) }, "rich": words.Rich, "took": words.Took, "today": func() string { return time.Now().UTC().Format(time.DateOnly) },
	}
}

// moment is a time as a page shows it.
type moment struct {
	Machine string // RFC 3339, UTC
	Ago     string // relative to now
	Left    string // until then, in two units
	Local   string // in the time zone of the person
	UTC     string
	Known   bool
}

// when is a time for the person who looks at a page.
func when(s *screen, v any) moment {
	t, known := words.Instant(v)
	if !known {
		return moment{Ago: "–"}
	}
	local := t.In(s.visit.Zone())
	return moment{t.UTC().Format(time.RFC3339), words.Ago(time.Since(t)), words.Long(time.Until(t)), local.Format("2006-01-02 15:04:05 MST"), t.UTC().Format("2006-01-02 15:04:05 UTC"), true}
}

// day is the date of a time in the time zone of the person.
func day(s *screen, v any) string {
	t, known := words.Instant(v)
	if !known {
		return "–"
	}
	return t.In(s.visit.Zone()).Format("2006-01-02")
}
