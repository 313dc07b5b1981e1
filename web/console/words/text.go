// Package words says what pages show. In come values: records, numbers, times, names that others
// have given; out go words, marks and links, for templates that escape them.
package words

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// Text is what others have written, with the characters that are not seen made visible: they
// could turn the line around, or hide in it.
func Text(v any) string {
	s := Str(v)
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

// Shortened is a name that is too long for its place, and the whole of it.
type Shortened struct {
	Head, Tail, Whole string
	Cut               bool
}

// Cut shortens a name in its middle: names differ at their ends.
func Cut(v any) Shortened {
	whole := Text(v)
	r := []rune(whole)
	if len(r) <= mostShown {
		return Shortened{Head: whole, Whole: whole}
	}
	return Shortened{Head: string(r[:mostShown*5/8]), Tail: string(r[len(r)-mostShown*3/8:]), Whole: whole, Cut: true}
}

// Bytes is a number of bytes.
type Bytes int64

// Short is the size for people.
func (n Bytes) Short() string { return human.Bytes(int64(n)) }

// Exact is the size in bytes.
func (n Bytes) Exact() string { return Number(int64(n)) + " bytes" }

// Number has its thousands apart.
func Number(n int64) string {
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

// Long is a duration for people.
func Long(d time.Duration) string { return human.Duration(d) }

// Seconds is a number of seconds for people; nil is not known.
func Seconds(v any) string {
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

// Instant is a time that a page shows; false: it is not known.
func Instant(v any) (time.Time, bool) {
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

// Ago is how long something is past, or ahead.
func Ago(d time.Duration) string {
	switch {
	case d < -time.Second:
		return "in " + Rough(-d)
	case d < 5*time.Second:
		return "just now"
	}
	return Rough(d) + " ago"
}

// Rough is a duration in its largest unit: it is read at a glance.
func Rough(d time.Duration) string {
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

// Within is an interval of time in words: "9 min to 2 hours". What would be past is over at
// any moment.
func Within(low, high time.Duration) string {
	from, to := Rough(max(low, 0)), Rough(max(high, 0))
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

// StatusOf is the mark of a status, or of another word that a page shows as one.
func StatusOf(v any) mark {
	word := Str(v)
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
			if slices.Contains(other.words, word) {
				m = mark{other.shape, other.class, ""}
			}
		}
	}
	m.Word = Text(word)
	return m
}

// LinkTo is an address with the fields of its query: link "/items" "status" "Failed". What is
// empty is left out.
func LinkTo(path string, pairs ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := Str(pairs[i+1]); value != "" {
			q.Add(Str(pairs[i]), value)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Str is a value as text; nil is empty.
func Str(v any) string {
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

// Whole is a whole number of any kind; nil is 0.
func Whole(v any) int64 {
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
	case Bytes:
		return int64(n)
	}
	return 0
}

// Deref is what a pointer to a number or a text points to, or an empty text.
func Deref(v any) string { return Str(v) }

// Dict gives a template several values by name.
func Dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[Str(pairs[i])] = pairs[i+1]
	}
	return m
}

// AsJSON is a value as it is in the API, to be read by people.
func AsJSON(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return Text(string(out))
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

// TableOf is the caption of a table and its columns: table "Items" "Item" "#Size". A # is before
// the names of columns with numbers.
func TableOf(caption string, columns ...string) heading {
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

// Rich tells the commands in a sentence, which are between backticks, from its words. Where a
// page does what a command does, a link to it stands in its place.
func Rich(v any) (list []piece) {
	for n, part := range strings.Split(Text(v), "`") {
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

// Took is how long something took, to the millisecond where that says something.
func Took(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < time.Second {
		return strconv.Itoa(int(d.Milliseconds())) + " ms"
	}
	return human.Duration(d)
}

// Short is a name as it fits into a line.
func (c Shortened) Short() string {
	if c.Cut {
		return c.Head + "…" + c.Tail
	}
	return c.Whole
}

// Sentence is a detail of a problem as a sentence.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text
}

// Lower is the summary of an operation within a sentence.
func Lower(summary string) string {
	if summary == "" {
		return ""
	}
	return strings.ToLower(summary[:1]) + summary[1:]
}

// Counted is a number with its word: "1 item", "12 items".
func Counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Names are the texts of a list of another type.
func Names[T ~string](list []T) (out []string) {
	for _, one := range list {
		if !slices.Contains(out, string(one)) {
			out = append(out, string(one))
		}
	}
	return out
}

// StageName is a stage as it is named to people: that of an ingest without its action.
func StageName(a registry.Action, s registry.Stage) string {
	if a == "Ingest" || string(a) == string(s) {
		return string(s)
	}
	return string(s) + " of " + string(a)
}

// StagePath leads to the page of a stage.
func StagePath(a registry.Action, s registry.Stage) string {
	return "/stages/" + url.PathEscape(string(a)) + "/" + url.PathEscape(string(s))
}

// Duration is a number of seconds as a duration.
func Duration(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
