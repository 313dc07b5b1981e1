package interim

import (
	"fmt"
	"strings"

	"github.com/farol-preservation/farol/bag"
)

// Findings puts what is wrong with a bag into a note: the first thirty, and how
// many more there are.
func Findings(list []bag.Finding, more int) string {
	const most = 30
	var b strings.Builder
	for i, f := range list {
		if i == most {
			break
		}
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(f.Message)
	}
	if rest := len(list) - most + more; len(list) > most && rest > 0 {
		fmt.Fprintf(&b, " | Too many errors: %d more.", rest)
	}
	return b.String()
}

// Warnings puts what was odd of a valid bag into words, for the note, the ledger and
// the record; "" if nothing was.
func Warnings(list []bag.Finding) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return "1 warning: " + Findings(list, 0)
	}
	return fmt.Sprintf("%d warnings: %s", len(list), Findings(list, 0))
}
