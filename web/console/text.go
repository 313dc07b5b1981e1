package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// functions are those that templates use. What they are given is escaped by the templates.
func (p *Pages) functions() template.FuncMap {
	return template.FuncMap{
		"text": text, "cut": cut, "bytes": func(n any) sized { return sized(whole(n)) }, "number": func(n any) string { return number(whole(n)) },
		"intime": record.InTime, "long": long, "seconds": seconds, "status": statusOf, "lower": lower, "sentence": sentence, "field": func(name string) string { return strings.ReplaceAll(name, "_", " ") },
		"key": newKey, "link": linkTo, "esc": url.PathEscape, "deref": deref, "list": func(v ...any) []any { return v }, "json": asJSON,
		"may":  func(s *screen, needs string) bool { return s.visit.Caller.Holds(permission.Permission(needs)) },
		"when": when, "day": day, "table": tableOf, "has": func(list []string, v string) bool { return contains(list, v) }, "add": func(a, b int) int { return a + b },
		"waits": func(d record.DeletionRequest) bool { return d.Waits(time.Now()) }, "dict": dict, "stagename": stageName, "stagepath": stagePath, "rough": func(n float64) string { return rough(seconds64(n)) }, "counted": func(n any, one, many string) string { return counted(whole(n), one, many) }, "rich": rich, "took": took, "today": func() string { return time.Now().UTC().Format(time.DateOnly) },
	}
}

// text is what others have written, with the characters that are not seen made visible: they
// could turn the line around, or hide in it.
func text(v any) string {
	s := str(v)
	if strings.IndexFunc(s, unseen) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteRune(r)
		case unseen(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case unseen(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unseen reports whether a character has no shape of its own: control characters, those that
// turn lines around (UAX #9), and all blanks but the plain one.
func unseen(r rune) bool {
	return r == unicode.ReplacementChar || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Zs, r) && r != ' '
}

// mostShown is how many characters of a name are shown in a table.
const mostShown = 64

// cutText is a name that is too long for its place, and the whole of it.
type cutText struct {
	Head, Tail, Whole string
	Cut               bool
}

// cut shortens a name in its middle: names differ at their ends.
func cut(v any) cutText {
	whole := text(v)
	r := []rune(whole)
	if len(r) <= mostShown {
		return cutText{Head: whole, Whole: whole}
	}
	return cutText{Head: string(r[:mostShown*5/8]), Tail: string(r[len(r)-mostShown*3/8:]), Whole: whole, Cut: true}
}

// sized is a number of bytes.
type sized int64

// Short is the size for people.
func (n sized) Short() string { return human.Bytes(int64(n)) }

// Exact is the size in bytes.
func (n sized) Exact() string { return number(int64(n)) + " bytes" }

// number has its thousands apart.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return strings.TrimSuffix(s, digits) + b.String()
}

// long is a duration for people.
func long(d time.Duration) string { return human.Duration(d) }

// seconds is a number of seconds for people; nil is not known.
func seconds(v any) string {
	switch n := v.(type) {
	case float64:
		return human.Duration(human.Seconds(n))
	case *float64:
		if n != nil {
			return human.Duration(human.Seconds(*n))
		}
	case int64:
		return human.Duration(time.Duration(n) * time.Second)
	case int:
		return human.Duration(time.Duration(n) * time.Second)
	}
	return "not known"
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
	t, known := instant(v)
	if !known {
		return moment{Ago: "–"}
	}
	local := t.In(s.visit.zone())
	return moment{t.UTC().Format(time.RFC3339), ago(time.Since(t)), long(time.Until(t)), local.Format("2006-01-02 15:04:05 MST"), t.UTC().Format("2006-01-02 15:04:05 UTC"), true}
}

// day is the date of a time in the time zone of the person.
func day(s *screen, v any) string {
	t, known := instant(v)
	if !known {
		return "–"
	}
	return t.In(s.visit.zone()).Format("2006-01-02")
}

func instant(v any) (time.Time, bool) {
	switch t := v.(type) {
	case time.Time:
		return t, !t.IsZero()
	case *time.Time:
		if t != nil {
			return *t, !t.IsZero()
		}
	}
	return time.Time{}, false
}

// ago is how long something is past, or ahead.
func ago(d time.Duration) string {
	switch {
	case d < -time.Second:
		return "in " + rough(-d)
	case d < 5*time.Second:
		return "just now"
	}
	return rough(d) + " ago"
}

// rough is a duration in its largest unit: it is read at a glance.
func rough(d time.Duration) string {
	unit := func(n int, name string) string {
		if n == 1 {
			return "1 " + name
		}
		return strconv.Itoa(n) + " " + name + "s"
	}
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return unit(int(d.Hours()), "hour")
	case d < 60*24*time.Hour:
		return unit(int(d.Hours()/24), "day")
	case d < 2*365*24*time.Hour:
		return unit(int(d.Hours()/24/30.44), "month")
	}
	return unit(int(d.Hours()/24/365.25), "year")
}

// within is an interval of time in words: "9 min to 2 hours". What would be past is over at
// any moment.
func within(low, high time.Duration) string {
	from, to := rough(max(low, 0)), rough(max(high, 0))
	number, unit, _ := strings.Cut(from, " ")
	switch _, same, _ := strings.Cut(to, " "); {
	case high < time.Second:
		return "a moment"
	case from == to:
		return to
	case unit == same:
		return number + " to " + to
	}
	return from + " to " + to
}

// mark is how a status looks: a shape, a class and its word. Colour alone says nothing.
type mark struct{ Shape, Class, Word string }

// statusOf is the mark of a status, or of another word that a page shows as one.
func statusOf(v any) mark {
	word := str(v)
	marks := map[string]mark{
		string(registry.Pending): {"○", "waits", ""}, string(registry.Started): {"▶", "runs", ""}, string(registry.Success): {"✓", "good", ""},
		string(registry.Failed): {"✕", "bad", ""}, string(registry.Suspended): {"‖", "held", ""}, string(registry.Cancelled): {"⊘", "off", ""},
	}
	m, found := marks[word]
	if !found {
		m = mark{"•", "off", ""}
		for _, other := range []struct {
			class, shape string
			words        []string
		}{
			{"good", "✓", []string{"done", "applied", "good", "active", "ok", "on", "yes", "stored", "verified", "Success", "approved", "ready", "working", "in time"}},
			{"bad", "✕", []string{"failed", "bad", "altered", "lost", "refused", "overdue", "missing", "oom", "killed", "panic", "lease expired", "fatal", "silent", "late"}},
			{"runs", "▶", []string{"applying", "undoing", "running", "in progress"}},
			{"held", "‖", []string{"paused", "stopped", "held", "waiting", "waits", "draining", "planned", "transient"}},
		} {
			if contains(other.words, word) {
				m = mark{other.shape, other.class, ""}
			}
		}
	}
	m.Word = text(word)
	return m
}

// linkTo is an address with the fields of its query: link "/items" "status" "Failed". What is
// empty is left out.
func linkTo(path string, pairs ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := str(pairs[i+1]); value != "" {
			q.Add(str(pairs[i]), value)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// str is a value as text; nil is empty.
func str(v any) string {
	switch s := v.(type) {
	case nil:
		return ""
	case string:
		return s
	case *string:
		if s == nil {
			return ""
		}
		return *s
	case *int64:
		if s == nil {
			return ""
		}
		return strconv.FormatInt(*s, 10)
	}
	return fmt.Sprint(v)
}

// whole is a whole number of any kind; nil is 0.
func whole(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case *int64:
		if n != nil {
			return *n
		}
	case float64:
		return int64(n)
	case sized:
		return int64(n)
	}
	return 0
}

// deref is what a pointer to a number or a text points to, or an empty text.
func deref(v any) string { return str(v) }

func contains(list []string, v string) bool {
	for _, one := range list {
		if one == v {
			return true
		}
	}
	return false
}

// dict gives a template several values by name.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[str(pairs[i])] = pairs[i+1]
	}
	return m
}

// asJSON is a value as it is in the API, to be read by people.
func asJSON(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return text(string(out))
}

// heading is what a table shows around its rows.
type heading struct {
	Caption string
	Columns []column
}

// column is a column of a table, of numbers or of something else.
type column struct {
	Name   string
	Number bool
}

// tableOf is the caption of a table and its columns: table "Items" "Item" "#Size". A # is before
// the names of columns with numbers.
func tableOf(caption string, columns ...string) heading {
	h := heading{Caption: caption}
	for _, c := range columns {
		name, number := strings.CutPrefix(c, "#")
		h.Columns = append(h.Columns, column{name, number})
	}
	return h
}

// piece is a part of a sentence: words, a link, or a command.
type piece struct {
	advice

	Code bool
}

// rich tells the commands in a sentence, which are between backticks, from its words. Where a
// page does what a command does, a link to it stands in its place.
func rich(v any) (list []piece) {
	for n, part := range strings.Split(text(v), "`") {
		page, found := inPlaceOf(part)
		switch {
		case part == "":
		case n%2 == 1 && found:
			list = append(list, piece{advice: page})
		default:
			list = append(list, piece{advice{Text: part}, n%2 == 1})
		}
	}
	return list
}

// took is how long something took, to the millisecond where that says something.
func took(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < time.Second {
		return strconv.Itoa(int(d.Milliseconds())) + " ms"
	}
	return human.Duration(d)
}
