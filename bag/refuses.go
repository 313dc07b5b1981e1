package bag

// Refuses tells whether a code is that of a fault for which a tar is refused as it
// is read, before there is a whole bag to validate, or was by an earlier version.
// Codes of warnings, and codes that are none of this package's, are not.
func Refuses(code string) bool {
	switch code {
	case codeNotATar, codeEmpty, codeTruncated, codeCorrupt, codeUnsupportedEntry, codeIllegalPath, codeTopDirs, codeNoTopDir,
		codeDuplicateFile, codeTooManyFiles, codeIllegalName, codeAppleDouble,
		codeManifestLine, codeManifestLong, codeManifestDigest, codeManifestPath, codeManifestEncoding, codeManifestConflict,
		codeByteOrderMark, codeTagFileTooLarge, codeTagFileMalformed, codeTagFileEncoding, codeEncodingUnknown, codeTagControl,
		codeFetchLine, codeFetchPath:
		return true
	}
	return false
}
