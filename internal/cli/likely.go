package cli

import (
	"slices"
	"strings"
)

// synonyms are words of other systems for statuses and stages.
func synonyms() map[string]string {
	return map[string]string{
		"done": "Success", "succeeded": "Success", "completed": "Success", "ok": "Success",
		"running": "Started", "working": "Started", "queued": "Pending", "waiting": "Pending",
		"error": "Failed", "canceled": "Cancelled", "aborted": "Cancelled", "parked": "Suspended",
	}
}

// likely returns the allowed value that a person probably meant by another one, or "".
func likely(value string, allowed []string) string {
	value = strings.ToLower(value)
	if s := synonyms()[value]; slices.Contains(allowed, s) {
		return s
	}
	best, least := "", 3
	for _, a := range allowed {
		if d := distance(value, strings.ToLower(a)); d < least && 2*d < len(a) {
			best, least = a, d
		}
	}
	return best
}

// distance is the Levenshtein distance: how many letters have to be added, left out or
// replaced to make a of b.
func distance(a, b string) int {
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
