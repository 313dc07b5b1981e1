package cli

import (
	"slices"
	"strings"

	"github.com/farol-preservation/farol/internal/human"
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
		if d := human.Distance(value, strings.ToLower(a)); d < least && 2*d < len(a) {
			best, least = a, d
		}
	}
	return best
}
