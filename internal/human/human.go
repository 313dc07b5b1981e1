// Package human writes for people: what comes in are sizes, times, refusals and names of
// unknown origin; what goes out is text that fits into a line. It reads sizes back.
package human

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Line makes a text of unknown origin fit for a line on a terminal, which obeys
// control characters.
func Line(s string) string {
	ok := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !ok(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if ok(r) || r == utf8.RuneError {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Bytes is a number of bytes for people.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n)/(1<<10), 0
	for v >= 1000 && unit < len(units)-1 {
		v, unit = v/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

// Duration is a duration for people: its two greatest units.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// Time is a point in time for people.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Pause says who paused something, since when and why.
func Pause(by string, since time.Time, reason *string) string {
	text := "by " + Line(by) + " since " + Time(since)
	if reason != nil {
		text += ": " + Line(*reason)
	}
	return text
}

// Count is a number with the noun that it counts.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Copies is a number of copies of an object's files; nil: they were not counted.
func Copies(n *int64) string {
	if n == nil {
		return "copies that are not counted, as there are more than 10,000 files"
	}
	return Count(*n, "copy", "copies")
}

// Shorten cuts a text after so many runes, and marks that it did.
func Shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// Wrap breaks a line between words; a word that is longer stays whole. most is 0 for
// lines of any length.
func Wrap(line string, most int) (lines []string) {
	if most <= 0 || utf8.RuneCountInString(line) <= most {
		return []string{line}
	}
	current := ""
	for word := range strings.FieldsSeq(line) {
		switch {
		case current == "":
			current = word
		case utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) <= most:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	return append(lines, current)
}

// Age is an age in seconds for people; 0 is none.
func Age(s float64) string {
	if s == 0 {
		return ""
	}
	return Duration(time.Duration(s * float64(time.Second)))
}

// Seconds is a number of seconds as a duration.
func Seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// Number is a whole number in digits.
func Number(n int64) string { return strconv.FormatInt(n, 10) }

// Distance is the Levenshtein distance: how many bytes have to be added, left out or
// replaced to make one text of the other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
