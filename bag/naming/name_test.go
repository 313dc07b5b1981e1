package naming

import (
	"regexp"
	"strings"
	"testing"
)

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a.tar", "a.b01.of02.tar", ".tar", "a.b.of.tar", "a.b1.of2", "x.b01.of02.b03.of04.tar", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := Of(key)
		if !strings.HasPrefix(key, name) {
			t.Errorf("Of(%q) = %q", key, name)
		}
		if rest := key[len(name):]; !regexp.MustCompile(`^(\.b[0-9]+\.of[0-9]+)?(\.tar)?$`).MatchString(rest) {
			t.Errorf("Of(%q) = %q", key, name)
		}
	})
}
