package bag

import "strings"

// add makes a file that has been read part of the bag.
func (rd *reader) add(f *File) {
	if known := rd.byPath[f.Path]; known != nil {
		// A manifest mentioned it before: that is the file which carries what
		// is expected, and which mentioned must find to be no longer missing.
		f.Expected = known.Expected
		*known = *f
		f = known
	}
	rd.byPath[f.Path] = f
	rd.bag.Files = append(rd.bag.Files, f)
	rd.bag.Bytes += f.Size
}

// interpreter returns what is to be done with the content of a file (nil if
// nothing), and when it has been read.
func (rd *reader) interpreter(f *File) (tee func([]byte), done func()) {
	done = func() {}
	switch f.Kind {
	case Manifest, TagManifest:
		return rd.manifest(f)
	case FetchFile:
		rd.bag.HasFetch = true
	case TagFile:
		if isParsedTagFile(f.Path) {
			return rd.tagFile(f)
		}
	case PayloadFile:
	}
	return nil, done
}

func (rd *reader) manifest(f *File) (tee func([]byte), done func()) {
	m := &manifestParser{
		name:      f.Path,
		algorithm: algorithmOf(f.Path),
		tag:       f.Kind == TagManifest,
		problems:  &rd.textProblems,
		warnings:  &rd.textWarned,
	}
	list := &rd.bag.Manifests
	if m.tag {
		list = &rd.bag.TagManifests
	}
	m.entry = func(number int, path []byte, raw string, e Expected) { rd.mention(m, number, path, raw, e) }
	m.setup(rd.encoding)
	done = func() {
		*list = append(*list, m.algorithm)
		if m.algorithm.size() == 0 {
			return
		}
		m.end()
		if _, known := rd.tagFiles[bagitTxt]; !known {
			rd.early = append(rd.early, m)
		}
	}
	if m.algorithm.size() == 0 {
		return nil, done // Validate says that it cannot be verified
	}
	return m.write, done
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
		if len(rd.byPath) >= rd.opts.MaxFiles {
			rd.tooMany()
			return
		}
		p := string(path)
		f = &File{Path: p, Kind: kindOf(p), Missing: true}
		rd.byPath[p] = f
		rd.mentioned = append(rd.mentioned, f)
	}
	for _, other := range f.Expected {
		switch {
		case other.Algorithm != e.Algorithm || other.TagManifest != e.TagManifest:
		case other.Digest == e.Digest:
			m.warnings.add(codeManifestDuplicate, m.name,
				"%s, line %d: %s is listed a second time, with the same digest.", m.name, number, show(f.Path))
			return
		default:
			m.problems.add(codeManifestConflict, m.name,
				"%s, line %d: %s is listed with the digest %s, but an earlier line has %s.",
				m.name, number, show(f.Path), e.Digest, other.Digest)
			return
		}
	}
	f.Expected = append(f.Expected, e)
	if raw != "" {
		rd.encoded = append(rd.encoded, encodedPath{raw, f, e, m.name})
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
// before were read as UTF-8, which is as good if they are ASCII.
func (rd *reader) learnEncoding(raw []byte) {
	var unused findings // they are collected when all tag files are parsed
	for _, t := range parseTags(bagitTxt, raw, utf8Encoding, &unused, &unused) {
		if !strings.EqualFold(t.Name, "Tag-File-Character-Encoding") {
			continue
		}
		enc, ok := encodingNamed(t.Value)
		if !ok {
			rd.textProblems.add(codeEncodingUnknown, bagitTxt,
				"bagit.txt declares the encoding '%s'. Supported are UTF-8, UTF-16 and ISO-8859-1.", show(t.Value))
			return
		}
		rd.encoding = enc
		break
	}
	for _, m := range rd.early {
		if rd.encoding == utf8Encoding || rd.encoding == latin1Encoding && m.ascii {
			continue
		}
		rd.textProblems.add(codeManifestEncoding, m.name,
			"bagit.txt declares the encoding %s, but comes after %s in the tar. Put it before the manifests, or use UTF-8.",
			rd.encoding, m.name)
	}
}

func (rd *reader) tooMany() {
	if !rd.textProblems.has(codeTooManyFiles) {
		rd.textProblems.stop(codeTooManyFiles, "", "The bag has more than %d files.", rd.opts.MaxFiles)
	}
}
