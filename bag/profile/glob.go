package profile

import (
	"strings"

	"github.com/farol-preservation/farol/bag/tagfile"
)

// PayloadPath is the path in the bag of an entry of Payload-Files-Required,
// which people write with the data/ in front or without.
func PayloadPath(entry string) string {
	if strings.HasPrefix(entry, tagfile.PayloadDir) {
		return entry
	}
	return tagfile.PayloadDir + entry
}

// glob says whether the pattern matches the whole name. "*" stands for any
// characters, "?" for one, "[a-z]" and "[!a-z]" for one of a set, as in Python's
// fnmatch, by which the reference validator goes: slashes are nothing special,
// so that "*" alone allows all files. It takes time of the order of the product
// of both lengths at most.
func glob(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, from := -1, 0 // the last "*", and where in the name its successor was tried
	i, k := 0, 0
	for k < len(n) {
		if i < len(p) && p[i] == '*' {
			star, from = i, k
			i++
			continue
		}
		if width, ok := globOne(p[i:], n[k]); ok {
			i += width
			k++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		i, k = star+1, from
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// globOne matches one character with the beginning of a pattern, and says how
// much of the pattern that took.
func globOne(p []rune, c rune) (width int, ok bool) {
	if len(p) == 0 {
		return 0, false
	}
	if p[0] == '?' {
		return 1, true
	}
	set, width := globSet(p)
	if p[0] != '[' || width == 0 {
		return 1, p[0] == c
	}
	not := set[0] == '!'
	if not {
		set = set[1:]
	}
	found := false
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			found = found || set[i] <= c && c <= set[i+2]
			i += 2
			continue
		}
		found = found || set[i] == c
	}
	return width, found != not
}

// globSet is what stands between brackets; a "]" that comes first is part of it.
// The width is zero if nothing closes the bracket, which then stands for itself.
func globSet(p []rune) (set []rune, width int) {
	for i := 1; i < len(p); i++ {
		first := i == 1 || i == 2 && p[1] == '!'
		if p[i] == ']' && !first {
			return p[1:i], i + 1
		}
	}
	return nil, 0
}
