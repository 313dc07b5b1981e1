package finding

import (
	"bytes"
	"testing"
)

func TestMessagesShowForeignTextSafely(t *testing.T) {
	t.Parallel()
	long := string(bytes.Repeat([]byte("é"), 1000))
	for text, want := range map[string]string{
		"plain, \"quoted\", é": "plain, \"quoted\", é",
		"a\nb\x1b[31m":         `a\nb\x1b[31m`,
		"\xff":                 `\xff`,
		long:                   long[:300] + "…",
	} {
		if got := Show(text); got != want {
			t.Errorf("Show(%q) = %s", text, got)
		}
	}
}
