package bag

import (
	"slices"
	"strings"
)

// add makes a file that has been read part of the bag.
func (rd *reader) add(f *File) {
	if known := rd.byPath[f.Path]; known != nil {
		// A manifest mentioned it before: that is the file which carries what
		// is expected, and which mentioned must find to be no longer missing.
		rd.arrived(f, known)
		f.Path = known.Path // there is one of it
		*known = *f
		f = known
	} else {
		rd.grow(f.Path)
	}
	rd.byPath[f.Path] = f
	rd.bag.Files = append(rd.bag.Files, f)
	rd.bag.Bytes += f.Size
}

// interpreter returns what is to be done with the content of a file (nil if
// nothing), and when it has been read.
func (rd *reader) interpreter(f *File) (tee func([]byte), done func()) {
	done = func() {}
	switch f.Kind() {
	case Manifest, TagManifest:
		return rd.manifest(f)
	case FetchFile:
		rd.bag.HasFetch = true
		return rd.fetchFile()
	case TagFile:
		if isParsedTagFile(f.Path) {
			return rd.tagFile(f)
		}
	case PayloadFile:
		rd.payloadDir = true
	}
	return nil, done
}

func (rd *reader) manifest(f *File) (tee func([]byte), done func()) {
	m := rd.newManifest(f.Path, f.Kind() == TagManifest)
	list := &rd.bag.Manifests
	if m.tag {
		list = &rd.bag.TagManifests
	}
	if m.algorithm.size() == 0 { // Validate says that it cannot be verified
		return nil, func() { *list = append(*list, m.algorithm) }
	}
	m.setup(rd.encoding)
	_, declared := rd.tagFiles[bagitTxt]
	tee = m.write
	if !declared {
		tee = func(p []byte) {
			rd.keep(m, p)
			m.write(p)
		}
	}
	return tee, func() {
		*list = append(*list, m.algorithm)
		m.end()
		if !declared {
			rd.early = append(rd.early, m)
		}
	}
}

func (rd *reader) newManifest(path string, tag bool) *manifestParser {
	m := &manifestParser{
		name:      path,
		algorithm: algorithmOf(path),
		tag:       tag,
		problems:  &rd.textProblems,
		warnings:  &rd.textWarned,
	}
	m.entry = func(number int, path []byte, raw string, e Expected) { rd.mention(m, number, path, raw, e) }
	return m
}

// maxEarly bounds what is kept of manifests that come before bagit.txt, in bytes.
const maxEarly = 4 << 20

// keep remembers a manifest whose encoding is not known yet, if it is not large.
func (rd *reader) keep(m *manifestParser, p []byte) {
	if m.dropped {
		return
	}
	if rd.kept+len(p) > maxEarly {
		rd.kept -= len(m.raw)
		m.raw, m.dropped = nil, true
		return
	}
	rd.kept += len(p)
	m.raw = append(m.raw, p...)
}

// encodedPath is a manifest's entry whose path was percent-decoded.
type encodedPath struct {
	raw      string
	decoded  *File
	expected Expected
	manifest string
}

// mention notes what a manifest says of a file that may not have come yet.
func (rd *reader) mention(m *manifestParser, number int, path []byte, raw string, e Expected) {
	f := rd.byPath[string(path)]
	if f == nil {
		p := string(path)
		if !rd.hasRoom(p) {
			return
		}
		rd.grow(p)
		f = &File{Path: p, Missing: true}
		rd.byPath[p] = f
		rd.mentioned = append(rd.mentioned, f)
	}
	switch earlier, twice := f.said(e.Algorithm, e.TagManifest); {
	case earlier == e.Digest:
		rd.duplicates.add(codeManifestDuplicate, m.name,
			"%s, line %d: %s is listed a second time, with the same digest.", m.name, number, show(f.Path))
		return
	case twice:
		m.problems.add(codeManifestConflict, m.name,
			"%s, line %d: %s is listed with the digest %s, but an earlier line has %s.",
			m.name, number, show(f.Path), e.Digest, earlier)
		return
	}
	if !rd.expect(f, e) {
		return
	}
	if raw != "" && rd.takes(entryRoom+int64(len(e.Digest)+len(raw))) {
		rd.encoded = append(rd.encoded, encodedPath{raw, f, e, m.name})
	}
}

// expect adds what a manifest says of a file, if there is room for it.
func (rd *reader) expect(f *File, e Expected) bool {
	others := len(f.Others)
	if f.expect(e); len(f.Others) > others && !rd.takes(entryRoom+int64(len(e.Digest))) {
		f.Others = f.Others[:others]
		return false
	}
	return true
}

// arrived gives a file that has been read what was said of it before.
func (rd *reader) arrived(f, before *File) {
	for _, e := range before.Others {
		rd.budget += entryRoom + int64(len(e.Digest))
	}
	f.Agreed, f.Others = 0, nil
	for _, e := range before.Expected() {
		rd.expect(f, e)
	}
}

func (rd *reader) tagFile(f *File) (tee func([]byte), done func()) {
	var raw []byte
	tooLarge := f.Size > maxTagFile
	tee = func(p []byte) {
		if !tooLarge {
			raw = append(raw, p...)
		}
	}
	return tee, func() {
		if tooLarge {
			rd.textProblems.add(codeTagFileTooLarge, f.Path,
				"%s has %d bytes; a tag file may have %d.", f.Path, f.Size, maxTagFile)
			return
		}
		rd.tagFiles[f.Path] = raw
		if f.Path == bagitTxt {
			rd.learnEncoding(raw)
		}
	}
}

// learnEncoding takes the bag's encoding from bagit.txt. Manifests that came
// before were read as UTF-8; if that was wrong, they are read again.
func (rd *reader) learnEncoding(raw []byte) {
	var unused findings // they are collected when all tag files are parsed
	for _, t := range parseTags(bagitTxt, raw, tagEncoding{}, &unused, &unused) {
		if !strings.EqualFold(t.Name, encodingTag) {
			continue
		}
		enc, ok := encodingNamed(t.Value)
		if !ok {
			rd.textProblems.add(codeEncodingUnknown, bagitTxt,
				"bagit.txt declares the encoding '%s', which is not supported. Use UTF-8.", show(t.Value))
			return
		}
		rd.encoding = enc
		break
	}
	early := rd.early
	rd.early, rd.kept = nil, 0
	if rd.encoding.isUTF8() {
		return
	}
	for _, m := range early {
		switch {
		case m.ascii && rd.encoding.keepsASCII():
		case m.dropped:
			rd.late(m.name)
		default:
			rd.forget(m)
			again := rd.newManifest(m.name, m.tag)
			again.setup(rd.encoding)
			again.write(m.raw)
			again.end()
		}
	}
	if f := rd.fetch; f != nil && (!f.ascii || !rd.encoding.keepsASCII()) {
		rd.late(fetchTxt)
	}
}

func (rd *reader) late(file string) {
	rd.textProblems.add(codeManifestEncoding, file,
		"bagit.txt declares the encoding %s, but comes after %s in the tar. Put it before the manifests, or use UTF-8.",
		rd.encoding, file)
}

// forget undoes what a manifest said.
func (rd *reader) forget(m *manifestParser) {
	for _, f := range rd.byPath {
		f.unexpect(m.algorithm, m.tag)
	}
	said := func(f Finding) bool { return f.Path == m.name }
	rd.textProblems.list = slices.DeleteFunc(rd.textProblems.list, said)
	rd.textWarned.list = slices.DeleteFunc(rd.textWarned.list, said)
	rd.duplicates.list = slices.DeleteFunc(rd.duplicates.list, said)
	rd.encoded = slices.DeleteFunc(rd.encoded, func(e encodedPath) bool { return e.manifest == m.name })
}

// What the index needs in bytes: on the average, for a file without its path,
// and for what a manifest says of one, without the digest, if that is not the file's.
const (
	bytesPerFile = 512
	emptyFile    = 344
	entryRoom    = 56
	manyFiles    = 20_000
)

func fileBytes(path string) int64 { return int64(emptyFile + len(path)) }

// hasRoom says whether one more file fits into the index, and notes it if not.
func (rd *reader) hasRoom(path string) bool {
	if len(rd.byPath) >= rd.opts.MaxFiles {
		rd.tooMany("The bag has more than %d files.", rd.opts.MaxFiles)
		return false
	}
	if rd.budget < fileBytes(path) {
		rd.tooLong()
		return false
	}
	return true
}

// grow notes that a file is in the index which was not.
func (rd *reader) grow(path string) {
	rd.budget -= fileBytes(path)
	if len(rd.byPath) >= manyFiles {
		rd.manyErr = rd.many()
		if rd.manyErr == nil && rd.opts.Grown != nil {
			rd.manyErr = rd.opts.Grown(len(rd.byPath))
		}
	}
}

// takes reserves bytes of the budget for what is said of a file.
func (rd *reader) takes(bytes int64) bool {
	if rd.budget < bytes {
		rd.tooLong()
		return false
	}
	rd.budget -= bytes
	return true
}

func (rd *reader) tooLong() {
	rd.tooMany("The bag has too many files with long paths, or too many manifests, for one bag: the list of them would exceed %d MiB.",
		int64(rd.opts.MaxFiles)*bytesPerFile>>20)
}

func (rd *reader) tooMany(format string, args ...any) {
	if !rd.textProblems.has(codeTooManyFiles) {
		rd.textProblems.stop(codeTooManyFiles, "", format, args...)
	}
}
