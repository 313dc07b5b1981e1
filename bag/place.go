package bag

import (
	"archive/tar"
	"fmt"
	"path"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/tagfile"
)

func (rd *reader) unsupported(name, what string) {
	rd.problems.Add(finding.UnsupportedEntry, finding.Show(pathOr(name)),
		"The %s contains %s (%s). A bag may contain only regular files and directories.%s", rd.container, what, finding.Show(name), howToAvoid(what))
}

// howToAvoid says how to pack a bag without such entries; blank if there is no general way.
func howToAvoid(what string) string {
	switch what {
	case sparseFile:
		return " Pack it with the holes filled: GNU tar without -S (--sparse), or bsdtar with --no-read-sparse."
	case hardLink:
		return " Pack each file with its content: GNU tar with --hard-dereference; with another tar, pack a copy of the directory."
	case symbolicLink:
		return " Pack what the link leads to, with tar -h, or leave it out."
	}
	return ""
}

// What entries are that howToAvoid knows.
const (
	sparseFile   = "a sparse file"
	hardLink     = "a hard link"
	symbolicLink = "a symbolic link"
)

// unsupported says what an entry is if it is not a regular file, else blank.
func unsupported(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont:
		if isSparse(h.PAXRecords) {
			return sparseFile
		}
		return ""
	case tar.TypeGNUSparse:
		return sparseFile
	case tar.TypeSymlink:
		return symbolicLink
	case tar.TypeLink:
		return hardLink
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	default:
		return fmt.Sprintf("an entry of type %q", h.Typeflag)
	}
}

// isSparse says whether PAX records are those of a sparse file.
func isSparse(records map[string]string) bool {
	for key := range records {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// place finds the path in the bag for an entry's name.
func (rd *reader) place(name string) (inBag string, ok bool) {
	top, inBag, fault := naming.SplitEntry(name)
	if !rd.inTop(name, top, fault) {
		return "", false
	}
	if f := rd.byPath[inBag]; f != nil && !f.Missing {
		rd.problems.Add(finding.DuplicateFile, inBag, "The tar contains %s more than once.", finding.Show(inBag))
		return "", false
	}
	return inBag, true
}

// appleDouble is said once of a bag. The arguments are what contains the file, its name,
// how many more there are, and what to do.
const appleDouble = "The %s contains %s%s. The tar of macOS writes such files for the attributes of other files (AppleDouble). " +
	"They are no part of the bag. %s"

const (
	withoutAppleDouble  = "Pack the bag again without them: COPYFILE_DISABLE=1 tar --no-mac-metadata -cf bag.tar bag"
	removingAppleDouble = "Remove them before you pack the bag: find bag -name '._*' -delete"
)

// isAppleDouble recognises the names of such files.
func isAppleDouble(name string) bool { return strings.HasPrefix(path.Base(name), "._") }

const illegalEntry = "The %s entry '%s' has an illegal path: %s."

// inTop says whether an entry lies in the bag's directory.
func (rd *reader) inTop(name, top, fault string) bool {
	switch {
	case fault == naming.NoTopDir && rd.stray == "" && isStray(name):
		rd.stray = finding.Show(name)
		rd.problems.Stop(finding.IllegalPath, rd.stray, illegalEntry, rd.container, rd.stray, fault) // in a checkpoint too: see strayIn
		return false
	case fault == naming.NoTopDir && isAppleDouble(name):
		if !finding.Has(rd.problems.Found, finding.AppleDouble) {
			rd.problems.Add(finding.AppleDouble, finding.Show(name), appleDouble, rd.container, finding.Show(name), "", withoutAppleDouble)
		}
		return false
	case fault != "":
		rd.problems.Add(finding.IllegalPath, finding.Show(name), illegalEntry, rd.container, finding.Show(name), fault)
		return false
	case rd.bag.TopDir == "":
		rd.bag.TopDir = top
	case rd.bag.TopDir != top:
		if !finding.Has(rd.problems.Found, finding.TopDirs) {
			rd.problems.Add(finding.TopDirs, finding.Show(name),
				"The tar has more than one top-level directory: %s and %s. All files of a bag must lie in one.",
				finding.Show(rd.bag.TopDir), finding.Show(top))
		}
		return false
	}
	return true
}

// directory notes that there is one, and judges its name like that of a file.
func (rd *reader) directory(name string) bool {
	top, inBag, fault := naming.SplitDirectory(name)
	if top == "" && fault == "" {
		return true // where the tar was made
	}
	if !rd.inTop(name, top, fault) {
		return false
	}
	rd.payloadDir = rd.payloadDir || inBag+"/" == tagfile.PayloadDir
	return true
}

// pathOr is the path in the bag or, if there is none, the name itself.
func pathOr(name string) string {
	if _, inBag, fault := naming.SplitEntry(name); fault == "" {
		return inBag
	}
	return name
}
