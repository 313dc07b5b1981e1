// Package finding has what can be wrong or odd with a bag. What comes in is a code and
// foreign text; what goes out are findings in words that a depositor can read, never more
// than a person would.
package finding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Finding is one thing that is wrong or odd, in words for the depositor. The
// codes are stable; docs/validation-codes.md lists them.
type Finding struct {
	Code string `json:"code"`
	// Path is that of a file in the bag, or the name of the tar's entry if that
	// is what is wrong; blank if no one file is to blame.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Expected and Found are what was compared, such as two digests; blank if
	// nothing was.
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
}

// The codes of findings. They are an interface to other programs: never change
// one, and describe each in docs/validation-codes.md.
const (
	// The tar.
	NotATar          = "not-a-tar"
	Empty            = "empty-tar"
	Truncated        = "tar-truncated"
	Corrupt          = "tar-corrupt"
	NoEndMarker      = "tar-no-end-marker"
	TrailingData     = "tar-trailing-data"
	UnsupportedEntry = "unsupported-entry"
	IllegalPath      = "illegal-path"
	TopDirs          = "multiple-top-directories"
	NoTopDir         = "no-top-directory"
	DuplicateFile    = "duplicate-file"
	TooManyFiles     = "too-many-files"
	IllegalName      = "illegal-name"
	AppleDouble      = "apple-double"
	FileTime         = "file-time-out-of-range"

	// Manifests.
	ManifestLine      = "manifest-line-malformed"
	ManifestLong      = "manifest-line-too-long"
	ManifestDigest    = "manifest-digest-malformed"
	ManifestPath      = "manifest-illegal-path"
	ManifestEncoding  = "manifest-encoding"
	ManifestConflict  = "manifest-conflict"
	ManifestDuplicate = "manifest-duplicate"
	ManifestDotSlash  = "manifest-dot-slash"
	ManifestScope     = "manifest-scope"
	ManifestPercent   = "manifest-percent-sign"
	ManifestBinary    = "manifest-binary-marker"
	ManifestForm      = "manifest-unicode-form"
	ManifestBackslash = "manifest-backslash"
	ByteOrderMark     = "byte-order-mark"

	// Tag files.
	TagFileTooLarge    = "tag-file-too-large"
	TagFileMalformed   = "tag-file-malformed"
	TagFileEncoding    = "tag-file-encoding"
	EncodingUnknown    = "encoding-unsupported"
	TagControl         = "tag-control-character"
	TagNotIndented     = "tag-line-not-indented"
	TagRepeated        = "tag-repeated"
	TagLabelSpace      = "tag-label-space"
	TagFileMissing     = "tag-file-missing"
	TagFileNotAllowed  = "tag-file-not-allowed"
	TagMissing         = "tag-missing"
	TagEmpty           = "tag-empty"
	TagIllegal         = "tag-illegal-value"
	StorageOption      = "storage-option-ignored"
	UnknownProfile     = "profile-unknown"
	ProfileUnreadable  = "profile-unreadable"
	Serialization      = "serialization-not-allowed"
	VersionMissing     = "version-missing"
	VersionNotAllowed  = "version-not-allowed"
	OxumMalformed      = "payload-oxum-malformed"
	OxumMismatch       = "payload-oxum-mismatch"
	ProfileNotNamed    = "profile-not-named"
	ProfileMember      = "profile-member-unknown"
	NotSerialized      = "not-serialized"
	TagRecommended     = "tag-recommended"
	TagOnce            = "tag-not-repeatable"
	Declaration        = "bagit-txt-extra"
	DeclarationOrder   = "bagit-txt-order"
	FetchNotAllowed    = "fetch-not-allowed"
	FetchMissing       = "fetch-missing"
	FetchLine          = "fetch-line-malformed"
	FetchPath          = "fetch-illegal-path"
	FetchScope         = "fetch-scope"
	FetchUnlisted      = "fetch-not-in-manifest"
	ManifestMissing    = "manifest-missing"
	ManifestNotAllowed = "manifest-not-allowed"
	ManifestUnknown    = "manifest-unsupported"

	// Files.
	FileMissing      = "file-missing"
	FileUnlisted     = "file-not-in-manifest"
	DigestMismatch   = "digest-mismatch"
	ControlCharacter = "illegal-control-character"
	NameClash        = "name-clash"
	BidiControl      = "bidirectional-control"

	// The payload as a whole.
	PayloadDirMissing = "payload-directory-missing"
	PayloadNotEmpty   = "payload-not-empty"
	PayloadRequired   = "payload-file-missing"
	PayloadNotAllowed = "payload-file-not-allowed"
)

// Refuses tells whether a code is that of a fault for which a tar is refused as it
// is read, before there is a whole bag to validate, or was by an earlier version.
// Codes of warnings, and codes that are none of this package's, are not.
func Refuses(code string) bool {
	switch code {
	case NotATar, Empty, Truncated, Corrupt, UnsupportedEntry, IllegalPath, TopDirs, NoTopDir,
		DuplicateFile, TooManyFiles, IllegalName, AppleDouble,
		ManifestLine, ManifestLong, ManifestDigest, ManifestPath, ManifestEncoding, ManifestConflict,
		ByteOrderMark, TagFileTooLarge, TagFileMalformed, TagFileEncoding, EncodingUnknown, TagControl,
		FetchLine, FetchPath:
		return true
	}
	return false
}

// Most bounds each list of findings. A bag with a million bad lines has
// one fault, and nobody reads further.
const Most = 1000

// A List of findings stops growing at [Most]; More counts what was left out.
type List struct {
	Found []Finding
	More  int
}

// Add adds a finding, if there is room for it.
func (l *List) Add(code, path, format string, args ...any) {
	if len(l.Found) >= Most {
		l.More++
		return
	}
	l.Stop(code, path, format, args...)
}

// Compared adds a finding about two things that should be the same.
func (l *List) Compared(code, path, expected, found, format string, args ...any) {
	n := len(l.Found)
	if l.Add(code, path, format, args...); len(l.Found) > n {
		l.Found[n].Expected, l.Found[n].Found = expected, found
	}
}

// Stop adds a finding after which nothing more is read. It must not be left
// out: that the bag was cut short decides what else can be said of it.
func (l *List) Stop(code, path, format string, args ...any) {
	l.Found = append(l.Found, Finding{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
}

// Has reports whether there is a finding with one of the codes.
func Has(list []Finding, codes ...string) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return slices.Contains(codes, f.Code) })
}

// Show makes foreign text fit for a message: on one line, valid UTF-8,
// not longer than a person reads.
func Show(s string) string {
	const most = 300
	cut := len(s) > most
	if cut {
		s = s[:most]
		for !utf8.ValidString(s) && len(s) > most-utf8.UTFMax {
			s = s[:len(s)-1]
		}
	}
	quoted := strconv.Quote(s)
	s = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if cut {
		s += "…"
	}
	return s
}
