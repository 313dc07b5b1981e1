package naming

import (
	"strings"
	"unicode/utf8"
)

// NoTopDir is the fault of an entry that lies in no directory.
const NoTopDir = "it has no top-level directory: all files of a bag must lie in one directory"

// maxPath is the longest path in bytes: S3 takes no longer key.
const maxPath = 1024

// PathFault says in words why a path cannot be one in a bag, blank if it can.
// It guards both what the tar contains and what manifests mention, so that no
// later stage and no restored bag can be led outside its directory.
func PathFault(path string) string {
	switch {
	case path == "":
		return "it is empty"
	case len(path) > maxPath:
		return "it is longer than 1024 bytes"
	case !utf8.ValidString(path):
		return "it is not valid UTF-8"
	case strings.ContainsRune(path, 0):
		return "it contains a NUL character"
	case strings.HasPrefix(path, "/"), isDrive(path):
		return "it is absolute"
	case isHome(path):
		return "it begins with a home directory"
	}
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "":
			return "it has an empty component (two slashes in a row, or one at the end)"
		case ".":
			return `it has a component "."`
		}
	}
	// Some systems read a backslash as a slash, and a bag may be restored there.
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return `it has a component ".."`
		}
	}
	return ""
}

// isDrive recognises C:\ and \\server.
func isDrive(path string) bool {
	if strings.HasPrefix(path, `\`) {
		return true
	}
	if len(path) < 3 || path[1] != ':' || path[2] != '\\' {
		return false
	}
	letter := path[0] | 0x20
	return 'a' <= letter && letter <= 'z'
}

// isHome recognises ~/ and ~user/. A file that is merely called ~notes is fine.
func isHome(path string) bool {
	return path == "~" || strings.HasPrefix(path, "~") && strings.Contains(path, "/")
}

// SplitEntry parts the name of a tar entry into its top directory and the path
// in the bag. Tars made by "tar c ./bag" begin every name with "./"; that says
// nothing, and is dropped.
func SplitEntry(name string) (top, path, fault string) {
	name = WithoutDot(name)
	top, path, ok := strings.Cut(name, "/")
	switch {
	case strings.HasPrefix(name, "/"):
		return "", "", "it is absolute"
	case !ok:
		return "", "", NoTopDir
	}
	if fault := PathFault(top); fault != "" {
		return "", "", "in its top-level directory, " + fault
	}
	return top, path, PathFault(path)
}

// SplitDirectory is SplitEntry for a directory: path is blank for the top one,
// and both are blank for the place where the tar was made.
func SplitDirectory(name string) (top, path, fault string) {
	name = strings.TrimSuffix(WithoutDot(strings.TrimSuffix(name, "/")+"/"), "/")
	if name == "" || name == "." {
		return "", "", ""
	}
	if strings.Contains(name, "/") {
		return SplitEntry(name)
	}
	return name, "", PathFault(name)
}

// WithoutDot drops the "./" with which a name begins, however often.
func WithoutDot(name string) string {
	for strings.HasPrefix(name, "./") {
		name = name[len("./"):]
	}
	return name
}
