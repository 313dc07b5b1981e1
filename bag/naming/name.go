// Package naming has the rules for the names of bags, of their files, and of the entries of
// their tars. What comes in is a name of unknown origin; what goes out are its parts, or why
// it is refused, in words. No name that it lets through leads out of a directory.
package naming

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// tarSuffix is how the name of a tar ends.
const tarSuffix = ".tar"

// MaxTar is the longest name of a tar in bytes that file systems take for one file. A
// restored bag comes as a tar of the bag's name.
const MaxTar = 255

// Of is the bag's name: the key of its tar in the receiving bucket, without
// ".tar" and without the ".b01.of05" of a part of a larger whole.
func Of(key string) string { return packed.ReplaceAllString(key, "") }

// packed is what the key of a tar has after the name of the bag.
var packed = regexp.MustCompile(`(\.b[0-9]+\.of[0-9]+)?(\.tar)?$`)

// Fault says in words why a bag cannot have a name, blank if it can. The name
// becomes part of the object's identifier, the top directory of the restored bag,
// and the name of its tar, on whatever system that is unpacked. What does not
// survive that must not come in.
func Fault(name string) string {
	switch {
	case len(name) > MaxTar-len(tarSuffix):
		return fmt.Sprintf("it is longer than %d bytes", MaxTar-len(tarSuffix))
	case name == "." || name == "..":
		return "it stands for a directory"
	case strings.Contains(name, "/"):
		return "it contains a slash"
	case strings.Contains(name, `\`):
		return "it contains a backslash, which some systems read as a slash"
	}
	if fault := PathFault(name); fault != "" {
		return fault
	}
	if strings.ContainsFunc(name, IsControl) {
		return "it contains a control character"
	}
	if strings.ContainsFunc(name, noText) {
		return "it contains U+FFFD, U+FFFE or U+FFFF, which stand for characters that could not be read"
	}
	return ""
}

// noText recognises what XML, and so a listing of a bucket, cannot carry, and what
// servers put in its place.
func noText(r rune) bool { return r == utf8.RuneError || r == 0xfffe || r == 0xffff }

// IsControl covers Unicode's category Cc.
func IsControl(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }
