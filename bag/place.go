package bag

import (
	"archive/tar"
	"fmt"
	"strings"
)

func (rd *reader) unsupported(name, what string) {
	rd.problems.add(codeUnsupportedEntry, show(pathOr(name)),
		"The %s contains %s (%s). A bag may contain only regular files and directories.", rd.container, what, show(name))
}

// unsupported says what an entry is if it is not a regular file, else blank.
func unsupported(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont:
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return "a sparse file"
			}
		}
		return ""
	case tar.TypeGNUSparse:
		return "a sparse file"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	default:
		return fmt.Sprintf("an entry of type %q", h.Typeflag)
	}
}

// place finds the path in the bag for an entry's name.
func (rd *reader) place(name string) (path string, ok bool) {
	top, path, fault := splitEntry(name)
	if !rd.inTop(name, top, fault) {
		return "", false
	}
	if f := rd.byPath[path]; f != nil && !f.Missing {
		rd.problems.add(codeDuplicateFile, path, "The tar contains %s more than once.", show(path))
		return "", false
	}
	return path, true
}

const illegalEntry = "The %s entry '%s' has an illegal path: %s."

// inTop says whether an entry lies in the bag's directory.
func (rd *reader) inTop(name, top, fault string) bool {
	switch {
	case fault == noTopDir && rd.stray == "" && saysBag(withoutDot(name)):
		rd.stray = show(name)
		rd.problems.stop(codeIllegalPath, rd.stray, illegalEntry, rd.container, rd.stray, fault) // in a checkpoint too: see strayIn
		return false
	case fault != "":
		rd.problems.add(codeIllegalPath, show(name), illegalEntry, rd.container, show(name), fault)
		return false
	case rd.bag.TopDir == "":
		rd.bag.TopDir = top
	case rd.bag.TopDir != top:
		if !rd.problems.has(codeTopDirs) {
			rd.problems.add(codeTopDirs, show(name),
				"The tar has more than one top-level directory: %s and %s. All files of a bag must lie in one.",
				show(rd.bag.TopDir), show(top))
		}
		return false
	}
	return true
}

// directory notes that there is one, and judges its name like that of a file.
func (rd *reader) directory(name string) bool {
	top, path, fault := splitDirectory(name)
	if top == "" && fault == "" {
		return true // where the tar was made
	}
	if !rd.inTop(name, top, fault) {
		return false
	}
	rd.payloadDir = rd.payloadDir || path+"/" == payloadDir
	return true
}

// pathOr is the path in the bag or, if there is none, the name itself.
func pathOr(name string) string {
	if _, path, fault := splitEntry(name); fault == "" {
		return path
	}
	return name
}
