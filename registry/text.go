package registry

import (
	"bytes"
	"encoding/json"
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

// storableJSON is a value as JSON that PostgreSQL can keep: a refused request is on record
// with whatever its texts have.
func storableJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || !bytes.Contains(text, []byte(`\u0000`)) {
		return text, err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	return json.Marshal(storable(plain))
}

// storable is [StorableText] for all texts of a value that was read from JSON.
func storable(v any) any {
	switch v := v.(type) {
	case string:
		return StorableText(v)
	case []any:
		for i := range v {
			v[i] = storable(v[i])
		}
	case map[string]any:
		clean := map[string]any{}
		for k, value := range v {
			clean[StorableText(k)] = storable(value)
		}
		return clean
	}
	return v
}

// HarmlessCells are cells of a table that a spreadsheet shows and does not run: one that
// begins as a formula does is preceded by an apostrophe.
func HarmlessCells(cells []string) []string {
	list := make([]string, len(cells))
	for i, cell := range cells {
		if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
			cell = "'" + cell
		}
		list[i] = cell
	}
	return list
}
