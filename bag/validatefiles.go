package bag

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// files checks each file's name and digests, and that manifests and tar agree
// on which files there are.
func (j *judge) files() {
	j.loose = j.bag.before10()
	payload := j.complete(j.bag.Manifests, false)
	tag := j.complete(j.bag.TagManifests, true)
	var apple []*File
	for _, f := range j.bag.Files {
		switch {
		case hasControl(f.Path):
			j.errors.Add(finding.ControlCharacter, f.Path,
				"File name '%s' contains one or more illegal control characters.", finding.Show(f.Path))
		case strings.ContainsAny(f.Path, bidiControls):
			j.warnings.Add(finding.BidiControl, f.Path,
				"The name %s contains characters that change the direction of text, so that people may read another name.", ascii(f.Path))
		}
		if f.Missing {
			continue // clashes reports it, since it can tell what it may have been mistaken for
		}
		j.present++
		switch f.Kind() {
		case PayloadFile:
			if f.strayAppleDouble() {
				apple = append(apple, f)
				continue
			}
			j.listed(f, payload, false)
		case Manifest:
			// other tag files may be absent from a tag manifest
			j.listed(f, tag, true)
		case TagManifest, TagFile, FetchFile:
		}
		j.digests(f)
	}
	j.appleDouble(apple)
}

// strayAppleDouble recognises a file of the payload that the tar of macOS added: no manifest
// lists it.
func (f *File) strayAppleDouble() bool {
	return f.Kind() == PayloadFile && !f.Missing && isAppleDouble(f.Path) && !f.isListed()
}

// appleDouble says once what such files are.
func (j *judge) appleDouble(files []*File) {
	if len(files) == 0 || finding.Has(j.bag.Problems, finding.AppleDouble) {
		return
	}
	container, what, more := "tar", withoutAppleDouble, ""
	if j.bag.Unpacked {
		container, what = "directory", removingAppleDouble
	}
	if n := len(files) - 1; n > 0 {
		more = " and " + strconv.Itoa(n) + " more files whose names begin with ._"
	}
	j.errors.Add(finding.AppleDouble, files[0].Path, appleDouble, container, finding.Show(files[0].Path), more, what)
}

// complete leaves out the manifests that were not read to their end; what they
// do not list, they may list.
func (j *judge) complete(all []Algorithm, tag bool) []Algorithm {
	return slices.DeleteFunc(slices.Clone(all), func(a Algorithm) bool {
		return a.Size() == 0 || slices.ContainsFunc(j.bag.Problems, func(f Finding) bool {
			return f.Code == finding.TooManyFiles || f.Code == finding.ManifestLong && f.Path == tagfile.ManifestName(a, tag)
		})
	})
}

// listed demands that every one of the manifests lists the file (RFC 8493, 3).
// Before version 1.0, one of the payload manifests was enough.
func (j *judge) listed(f *File, manifests []Algorithm, tag bool) {
	if !tag && j.loose && f.inPayloadManifest() {
		return
	}
	var absent []string
	for _, a := range manifests {
		if _, ok := f.said(a, tag); !ok {
			absent = append(absent, tagfile.ManifestName(a, tag))
		}
	}
	if len(absent) > 0 {
		j.errors.Add(finding.FileUnlisted, f.Path, "File %s is not in manifest %s.", finding.Show(f.Path), join(absent))
	}
}

func (j *judge) digests(f *File) {
	if f.Unread {
		j.unread++
		return
	}
	for _, e := range f.Others {
		j.errors.Compared(finding.DigestMismatch, f.Path, string(e.Algorithm)+":"+e.Digest, string(e.Algorithm)+":"+f.Digests.Hex(e.Algorithm),
			"File %s: the %s digest of its content is %s, but %s says %s.",
			finding.Show(f.Path), e.Algorithm, f.Digests.Hex(e.Algorithm), e.Manifest(), e.Digest)
	}
}

// bidiControls are the embeddings, overrides and isolates of Unicode (UAX 9). Marks
// and joiners are not among them: names in Arabic, Hebrew and Persian need these.
const bidiControls = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

// payload checks the rules for the payload as a whole.
func (j *judge) payload() {
	if j.cut {
		return
	}
	files, octets := 0, int64(0)
	for _, f := range j.bag.Files {
		if f.Kind() != PayloadFile {
			continue
		}
		files++
		octets += f.Size
		if !f.Missing && !j.rules.AllowsPayloadFile(f.Path) {
			j.errors.Add(finding.PayloadNotAllowed, f.Path, "Bag contains illegal payload file '%s'. The profile allows %s.",
				finding.Show(f.Path), finding.Show(strings.Join(j.rules.PayloadFilesAllowed, ", ")))
		}
	}
	if j.rules.DataEmpty && (files > 1 || octets > 0) {
		j.errors.Add(finding.PayloadNotEmpty, "",
			"The profile %s requires an empty payload (no file, or one of no bytes); it has %d bytes in %d files.", j.profile, octets, files)
	}
	for _, entry := range j.rules.PayloadFilesRequired {
		j.payloadRequired(profile.PayloadPath(entry))
	}
	if j.bag.NoPayloadDir && files == 0 {
		const fault = "There is no directory data/, which every bag must have, even if it is empty."
		if j.bag.Unpacked || j.profile.Name == profile.BagIt {
			j.errors.Add(finding.PayloadDirMissing, "", fault)
		} else { // tools that write no directories into a tar cannot say that there is one
			j.warnings.Add(finding.PayloadDirMissing, "", fault)
		}
	}
}

// payloadRequired looks for a file or, if there is a slash at the end, for
// anything in a directory.
func (j *judge) payloadRequired(path string) {
	found := slices.ContainsFunc(j.bag.Files, func(f *File) bool {
		return !f.Missing && (f.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(f.Path, path))
	})
	if !found {
		j.errors.Add(finding.PayloadRequired, path, "%s is missing. The profile %s requires it.", finding.Show(path), j.profile)
	}
}

// hasControl recognises control characters, the no-break space, and both of
// them where a tool wrote them as an escape such as \u0085.
func hasControl(path string) bool {
	for i, r := range path {
		if naming.IsControl(r) || r == 0xa0 || r == '\\' && isEscaped(path[i:]) {
			return true
		}
	}
	return false
}

func isEscaped(s string) bool {
	if len(s) < 6 || s[1]|0x20 != 'u' || s[2:4] != "00" {
		return false
	}
	code, err := strconv.ParseUint(s[4:6], 16, 8)
	return err == nil && (strings.IndexByte("0189", s[4]) >= 0 || code == 0x7f)
}

// oxum compares Payload-Oxum, octets and files of the payload, with what is
// there (RFC 8493, 2.2.2).
func (j *judge) oxum() {
	if j.cut {
		return
	}
	var octets, count int64
	for _, f := range j.bag.Files {
		if f.Kind() == PayloadFile && !f.Missing && !f.strayAppleDouble() {
			octets += f.Size
			count++
		}
	}
	found := strconv.FormatInt(octets, 10) + "." + strconv.FormatInt(count, 10)
	for _, t := range j.bag.Tags {
		if t.File != tagfile.BagInfo || !strings.EqualFold(t.Name, "Payload-Oxum") || t.Value == "" {
			continue
		}
		wantOctets, wantCount, ok := parseOxum(t.Value)
		switch {
		case !ok:
			j.errors.Add(finding.OxumMalformed, tagfile.BagInfo,
				"In file bag-info.txt, Payload-Oxum '%s' is not of the form octets.files, like %s.", finding.Show(t.Value), found)
		case wantOctets != octets || wantCount != count:
			j.errors.Compared(finding.OxumMismatch, tagfile.BagInfo, finding.Show(t.Value), found,
				"In file bag-info.txt, Payload-Oxum %s says %d bytes in %d files, but the payload has %d bytes in %d files.",
				finding.Show(t.Value), wantOctets, wantCount, octets, count)
		}
	}
}

func parseOxum(s string) (octets, count int64, ok bool) {
	left, right, _ := strings.Cut(s, ".")
	o, err1 := strconv.ParseUint(left, 10, 63)
	c, err2 := strconv.ParseUint(right, 10, 63)
	return int64(o), int64(c), err1 == nil && err2 == nil
}

// clashes warns of files whose names are one on some systems, and reports files
// that are missing, with the help of the same index.
func (j *judge) clashes() {
	seed := maphash.MakeSeed()
	index := make(map[uint64]*File, j.present) // by hash: full names would double the memory of the bag
	for _, f := range j.bag.Files {
		if f.Missing {
			continue
		}
		folded := fold(f.Path)
		key := maphash.String(seed, folded)
		other := index[key]
		if other == nil {
			index[key] = f
		} else if fold(other.Path) == folded {
			j.warnings.Add(finding.NameClash, f.Path,
				"The names %s and %s differ only in upper and lower case, or in how accents are encoded. On some systems they are one file.",
				finding.Show(other.Path), finding.Show(f.Path))
		}
	}
	if j.cut {
		return
	}
	for _, f := range j.bag.Files {
		if f.Missing {
			folded := fold(f.Path)
			j.missing(f, index[maphash.String(seed, folded)], folded)
		}
	}
}

func (j *judge) missing(f, similar *File, folded string) {
	var names []string
	for _, e := range f.Expected() {
		names = append(names, e.Manifest())
	}
	hint := ""
	if f.Fetch {
		hint = " fetch.txt says from where it can be had, but Farol takes only bags that are whole."
	}
	if similar != nil && fold(similar.Path) == folded {
		hint += " There is " + ascii(similar.Path) +
			", whose name differs in upper and lower case, or in how accents are encoded."
	}
	j.errors.Add(finding.FileMissing, f.Path, "File %s in manifest %s is missing from the bag.%s",
		finding.Show(f.Path), join(names), hint)
}

// ascii makes visible what looks the same.
func ascii(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// fold maps names that some file system takes for the same to one string.
func fold(path string) string {
	for i := range len(path) {
		if path[i] >= utf8.RuneSelf {
			return strings.ToLower(norm.NFC.String(path))
		}
	}
	return strings.ToLower(path)
}

func join(words []string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " and " + words[n]
}
