package bag

import (
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/tagfile"
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
		if tagfile.HasTags(f.Path) {
			return rd.tagFile(f)
		}
	case PayloadFile:
		rd.payloadDir = true
	}
	return nil, done
}

// manifest is one that is being read, or came before bagit.txt.
type manifest struct {
	*tagfile.Parser

	name    string
	raw     []byte // as long as the encoding is not known
	dropped bool   // raw was too large
}

func (rd *reader) manifest(f *File) (tee func([]byte), done func()) {
	algorithm, tag := tagfile.OfManifest(f.Path)
	list := &rd.bag.Manifests
	if tag {
		list = &rd.bag.TagManifests
	}
	if algorithm.Size() == 0 { // Validate says that it cannot be verified
		return nil, func() { *list = append(*list, algorithm) }
	}
	m := &manifest{Parser: rd.parser(f.Path), name: f.Path}
	_, declared := rd.tagFiles[tagfile.Bagit]
	tee = m.Write
	if !declared {
		tee = func(p []byte) {
			rd.keep(m, p)
			m.Write(p)
		}
	}
	return tee, func() {
		*list = append(*list, algorithm)
		m.End()
		if !declared {
			rd.early = append(rd.early, m)
		}
	}
}

// parser reads a manifest in the encoding that is known so far.
func (rd *reader) parser(name string) *tagfile.Parser {
	return tagfile.NewManifest(name, rd.encoding, &rd.textProblems, &rd.textWarned, func(number int, path []byte, raw string, e Expected) {
		rd.mention(name, number, path, raw, e)
	})
}

func (rd *reader) fetchFile() (tee func([]byte), done func()) {
	rd.fetch = tagfile.NewFetch(rd.encoding, &rd.textProblems, func(number int, path string) {
		if rd.takes(entryRoom + int64(len(path))) {
			rd.fetchLines = append(rd.fetchLines, fetchLine{number, path})
		}
	})
	return rd.fetch.Write, rd.fetch.End
}

// fetchLine is where fetch.txt lists a file.
type fetchLine struct {
	number int
	path   string
}

// fetched compares fetch.txt with the payload manifests, which must list all that
// it lists.
func (rd *reader) fetched() {
	for _, l := range rd.fetchLines {
		f := rd.byPath[l.path]
		if f == nil || !f.inPayloadManifest() {
			rd.textProblems.Add(finding.FetchUnlisted, tagfile.Fetch,
				"%s, line %d: %s is in no payload manifest.", tagfile.Fetch, l.number, finding.Show(l.path))
			continue
		}
		f.Fetch = true
	}
}

// maxEarly bounds what is kept of manifests that come before bagit.txt, in bytes.
const maxEarly = 4 << 20

// keep remembers a manifest whose encoding is not known yet, if it is not large.
func (rd *reader) keep(m *manifest, p []byte) {
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
func (rd *reader) mention(manifest string, number int, path []byte, raw string, e Expected) {
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
		rd.duplicates.Add(finding.ManifestDuplicate, manifest,
			"%s, line %d: %s is listed a second time, with the same digest.", manifest, number, finding.Show(f.Path))
		return
	case twice:
		rd.textProblems.Add(finding.ManifestConflict, manifest,
			"%s, line %d: %s is listed with the digest %s, but an earlier line has %s.",
			manifest, number, finding.Show(f.Path), e.Digest, earlier)
		return
	}
	if !rd.expect(f, e) {
		return
	}
	if raw != "" && rd.takes(entryRoom+int64(len(e.Digest)+len(raw))) {
		rd.encoded = append(rd.encoded, encodedPath{raw, f, e, manifest})
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
	tooLarge := f.Size > tagfile.MaxSize
	tee = func(p []byte) {
		if !tooLarge {
			raw = append(raw, p...)
		}
	}
	return tee, func() {
		if tooLarge {
			rd.textProblems.Add(finding.TagFileTooLarge, f.Path,
				"%s has %d bytes; a tag file may have %d.", f.Path, f.Size, tagfile.MaxSize)
			return
		}
		rd.tagFiles[f.Path] = raw
		if f.Path == tagfile.Bagit {
			rd.learnEncoding(raw)
		}
	}
}

// learnEncoding takes the bag's encoding from bagit.txt. Manifests that came
// before were read as UTF-8; if that was wrong, they are read again.
func (rd *reader) learnEncoding(raw []byte) {
	var unused finding.List // they are collected when all tag files are parsed
	for _, t := range tagfile.ParseTags(tagfile.Bagit, raw, tagfile.Encoding{}, &unused, &unused) {
		if !strings.EqualFold(t.Name, tagfile.EncodingTag) {
			continue
		}
		enc, ok := tagfile.EncodingNamed(t.Value)
		if !ok {
			rd.textProblems.Add(finding.EncodingUnknown, tagfile.Bagit,
				"bagit.txt declares the encoding '%s', which is not supported. Use UTF-8.", finding.Show(t.Value))
			return
		}
		rd.encoding = enc
		break
	}
	early := rd.early
	rd.early, rd.kept = nil, 0
	if rd.encoding.IsUTF8() {
		return
	}
	for _, m := range early {
		switch {
		case m.ASCII && rd.encoding.KeepsASCII():
		case m.dropped:
			rd.late(m.name)
		default:
			rd.forget(m)
			again := rd.parser(m.name)
			again.Write(m.raw)
			again.End()
		}
	}
	if f := rd.fetch; f != nil && (!f.ASCII || !rd.encoding.KeepsASCII()) {
		rd.late(tagfile.Fetch)
	}
}

func (rd *reader) late(file string) {
	rd.textProblems.Add(finding.ManifestEncoding, file,
		"bagit.txt declares the encoding %s, but comes after %s in the tar. Put it before the manifests, or use UTF-8.",
		rd.encoding, file)
}

// forget undoes what a manifest said.
func (rd *reader) forget(m *manifest) {
	algorithm, tag := tagfile.OfManifest(m.name)
	for _, f := range rd.byPath {
		f.unexpect(algorithm, tag)
	}
	for _, list := range []*finding.List{&rd.textProblems, &rd.textWarned, &rd.duplicates} {
		list.Found = slices.DeleteFunc(list.Found, func(f Finding) bool { return f.Path == m.name })
	}
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
		if rd.manyErr == nil {
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
	if !finding.Has(rd.textProblems.Found, finding.TooManyFiles) {
		rd.textProblems.Stop(finding.TooManyFiles, "", format, args...)
	}
}
