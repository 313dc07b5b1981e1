package human

import (
	"errors"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"
)

// sizeSyntax is what go-humanize is given: it would take "1,5GiB" for 15 GiB, and
// "1.5.7GiB" for 1.5.
var sizeSyntax = regexp.MustCompile(`^[0-9]+( *[A-Za-z]*|\.[0-9]+ *[A-Za-z]+)$`)

// ParseBytes reads a number of bytes: 1048576, 64MiB, 1.5 GiB or 500MB. Units with
// an i are powers of 1024, the others of 1000; upper and lower case are the same.
// The error does not repeat the text.
func ParseBytes(text string) (int64, error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "+")
	if !sizeSyntax.MatchString(text) {
		return 0, errSize
	}
	n, err := humanize.ParseBigBytes(text) // exact, unlike ParseBytes
	if err != nil || !n.IsInt64() {
		return 0, errSize
	}
	return n.Int64(), nil
}

// errSize says what a size may be.
var errSize = errors.New("it must be a number of bytes such as 1048576, 64MiB or 1GiB")
