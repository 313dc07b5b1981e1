package registry

import (
	"strings"
	"unicode"
)

// CleanText is what is kept of a written note or reason: its lines as one, without
// control characters and those that reverse the direction of text. Both would have the
// terminal or page that shows it show something else.
func CleanText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	bad := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
	}
	if strings.IndexFunc(text, bad) < 0 {
		return text
	}
	return strings.Join(strings.FieldsFunc(text, bad), " ")
}

// StorableText is what PostgreSQL can keep of a text: names in a tar may be any bytes. Bytes
// that are no UTF-8, and null bytes, become U+FFFD.
func StorableText(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
