package bag

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The codes of findings. They are an interface to other programs: never change
// one, and describe each in docs/validation-codes.md.
const (
	// The tar.
	codeNotATar          = "not-a-tar"
	codeEmpty            = "empty-tar"
	codeTruncated        = "tar-truncated"
	codeCorrupt          = "tar-corrupt"
	codeNoEndMarker      = "tar-no-end-marker"
	codeTrailingData     = "tar-trailing-data"
	codeUnsupportedEntry = "unsupported-entry"
	codeIllegalPath      = "illegal-path"
	codeTopDirs          = "multiple-top-directories"
	codeNoTopDir         = "no-top-directory"
	codeDuplicateFile    = "duplicate-file"
	codeTooManyFiles     = "too-many-files"
	codeIllegalName      = "illegal-name"
	codeAppleDouble      = "apple-double"
	codeFileTime         = "file-time-out-of-range"

	// Manifests.
	codeManifestLine      = "manifest-line-malformed"
	codeManifestLong      = "manifest-line-too-long"
	codeManifestDigest    = "manifest-digest-malformed"
	codeManifestPath      = "manifest-illegal-path"
	codeManifestEncoding  = "manifest-encoding"
	codeManifestConflict  = "manifest-conflict"
	codeManifestDuplicate = "manifest-duplicate"
	codeManifestDotSlash  = "manifest-dot-slash"
	codeManifestScope     = "manifest-scope"
	codeManifestPercent   = "manifest-percent-sign"
	codeManifestBinary    = "manifest-binary-marker"
	codeManifestForm      = "manifest-unicode-form"
	codeManifestBackslash = "manifest-backslash"
	codeByteOrderMark     = "byte-order-mark"

	// Tag files.
	codeTagFileTooLarge    = "tag-file-too-large"
	codeTagFileMalformed   = "tag-file-malformed"
	codeTagFileEncoding    = "tag-file-encoding"
	codeEncodingUnknown    = "encoding-unsupported"
	codeTagControl         = "tag-control-character"
	codeTagNotIndented     = "tag-line-not-indented"
	codeTagRepeated        = "tag-repeated"
	codeTagLabelSpace      = "tag-label-space"
	codeTagFileMissing     = "tag-file-missing"
	codeTagFileNotAllowed  = "tag-file-not-allowed"
	codeTagMissing         = "tag-missing"
	codeTagEmpty           = "tag-empty"
	codeTagIllegal         = "tag-illegal-value"
	codeStorageOption      = "storage-option-ignored"
	codeUnknownProfile     = "profile-unknown"
	codeProfileUnreadable  = "profile-unreadable"
	codeSerialization      = "serialization-not-allowed"
	codeVersionMissing     = "version-missing"
	codeVersionNotAllowed  = "version-not-allowed"
	codeOxumMalformed      = "payload-oxum-malformed"
	codeOxumMismatch       = "payload-oxum-mismatch"
	codeProfileNotNamed    = "profile-not-named"
	codeProfileMember      = "profile-member-unknown"
	codeNotSerialized      = "not-serialized"
	codeTagRecommended     = "tag-recommended"
	codeTagOnce            = "tag-not-repeatable"
	codeDeclaration        = "bagit-txt-extra"
	codeDeclarationOrder   = "bagit-txt-order"
	codeFetchNotAllowed    = "fetch-not-allowed"
	codeFetchMissing       = "fetch-missing"
	codeFetchLine          = "fetch-line-malformed"
	codeFetchPath          = "fetch-illegal-path"
	codeFetchScope         = "fetch-scope"
	codeFetchUnlisted      = "fetch-not-in-manifest"
	codeManifestMissing    = "manifest-missing"
	codeManifestNotAllowed = "manifest-not-allowed"
	codeManifestUnknown    = "manifest-unsupported"

	// Files.
	codeFileMissing      = "file-missing"
	codeFileUnlisted     = "file-not-in-manifest"
	codeDigestMismatch   = "digest-mismatch"
	codeControlCharacter = "illegal-control-character"
	codeNameClash        = "name-clash"
	codeBidiControl      = "bidirectional-control"

	// The payload as a whole.
	codePayloadDirMissing = "payload-directory-missing"
	codePayloadNotEmpty   = "payload-not-empty"
	codePayloadRequired   = "payload-file-missing"
	codePayloadNotAllowed = "payload-file-not-allowed"
)

// maxFindings bounds each list of findings. A bag with a million bad lines has
// one fault, and nobody reads further.
const maxFindings = 1000

// findings is a list that stops growing.
type findings struct {
	list []Finding
	more int
}

func (l *findings) add(code, path, format string, args ...any) {
	if len(l.list) >= maxFindings {
		l.more++
		return
	}
	l.list = append(l.list, Finding{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
}

// compared adds a finding about two things that should be the same.
func (l *findings) compared(code, path, expected, found, format string, args ...any) {
	n := len(l.list)
	if l.add(code, path, format, args...); len(l.list) > n {
		l.list[n].Expected, l.list[n].Found = expected, found
	}
}

// stop adds a finding after which nothing more is read. It must not be left
// out: that the bag was cut short decides what else can be said of it.
func (l *findings) stop(code, path, format string, args ...any) {
	l.list = append(l.list, Finding{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (l *findings) has(code string) bool { return hasCode(l.list, code) }

// all says that there is no finding of another code.
func (l *findings) all(code string) bool {
	return !slices.ContainsFunc(l.list, func(f Finding) bool { return f.Code != code })
}

func hasCode(list []Finding, code string) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Code == code })
}

// show makes foreign text fit for a message: on one line, valid UTF-8,
// not longer than a person reads.
func show(s string) string {
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
