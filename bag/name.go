package bag

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// tarSuffix is how the name of a tar ends.
const tarSuffix = ".tar"

// maxTarName is the longest name in bytes that file systems take for one file. A
// restored bag comes as a tar of the bag's name.
const maxTarName = 255

// Name is the bag's name: the key of its tar in the receiving bucket, without
// ".tar" and without the ".b01.of05" of a part of a larger whole.
func Name(key string) string {
	name := strings.TrimSuffix(key, tarSuffix)
	head, total, ok := cutLast(name, ".of")
	if !ok || !isDigits(total) {
		return name
	}
	head, part, ok := cutLast(head, ".b")
	if !ok || !isDigits(part) {
		return name
	}
	return head
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// NameFault says in words why a bag cannot have a name, blank if it can. The name
// becomes part of the object's identifier, the top directory of the restored bag,
// and the name of its tar, on whatever system that is unpacked. What does not
// survive that must not come in.
func NameFault(name string) string {
	switch {
	case len(name) > maxTarName-len(tarSuffix):
		return fmt.Sprintf("it is longer than %d bytes", maxTarName-len(tarSuffix))
	case name == "." || name == "..":
		return "it stands for a directory"
	case strings.Contains(name, "/"):
		return "it contains a slash"
	case strings.Contains(name, `\`):
		return "it contains a backslash, which some systems read as a slash"
	}
	if fault := pathFault(name); fault != "" {
		return fault
	}
	if strings.ContainsFunc(name, isControl) {
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

// JudgeName judges the name of a bag's tar: its key in the receiving bucket, or its
// file name. ok is false if nothing of that name may be ingested; then the finding
// says why.
func JudgeName(key string) (f Finding, ok bool) {
	fault := NameFault(Name(key))
	if fault == "" && len(key) > maxTarName {
		fault = fmt.Sprintf("the tar's name is longer than %d bytes", maxTarName)
	}
	return Finding{
		Code: codeIllegalName,
		Message: fmt.Sprintf("The name '%s' is not legal for a bag: %s. A bag is named after its tar. Rename the tar and upload it again.",
			show(Name(key)), fault),
	}, fault == ""
}
