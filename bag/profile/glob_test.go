package profile

import "testing"

// The quick matcher says what a simple one says.
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{{"a*b?c", "aXXbYc"}, {"[!a-c]*[]]", "d]"}, {"[", "["}, {"**", ""}, {"[a-]", "-"}, {"[!", "[!"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 12 {
			return // the simple one takes exponential time
		}
		if got, want := glob(pattern, name), simpleGlob([]rune(pattern), []rune(name)); got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, name, got)
		}
	})
}

func simpleGlob(p, n []rune) bool {
	switch {
	case len(p) == 0:
		return len(n) == 0
	case p[0] == '*':
		return simpleGlob(p[1:], n) || len(n) > 0 && simpleGlob(p, n[1:])
	case len(n) == 0:
		return false
	}
	width, ok := globOne(p, n[0])
	return ok && simpleGlob(p[width:], n[1:])
}
