package bag

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// read reads the tar from where it is to its end.
func (rd *reader) read(ctx context.Context) (*Bag, error) {
	if err := rd.archive(ctx); err != nil {
		return nil, err
	}
	if err := rd.drain(ctx); err != nil {
		return nil, err
	}
	b := rd.finish()
	b.Whole = rd.whole.Sum()
	return b, nil
}

// endOfArchive is called at the marker, or where the tar just ends. archive/tar
// does not tell these apart, but the number of bytes it took does.
func (rd *reader) endOfArchive() {
	switch {
	case len(rd.bag.Files) == 0 && len(rd.problems.Found) == 0:
		rd.problems.Stop(finding.Empty, "", "The tar contains no files.")
	case rd.tar.offset < rd.next: // archive/tar puts up with this
		rd.problems.Stop(finding.Truncated, rd.after,
			"The tar ends in the padding after %s. The file may not have been uploaded completely.", rd.after)
	case rd.tar.offset == rd.next:
		rd.warnings.Add(finding.NoEndMarker, "",
			"The tar has no end-of-archive marker. It may have been cut off after %s.", rd.after)
	}
}

const magicBytes = 6

// badHeader finds words for bytes that archive/tar does not take for a header.
func (rd *reader) badHeader(err error, start int64, magic []byte) {
	first := start == 0 && rd.next == 0 && rd.tar.offset <= blockSize
	after := "its beginning"
	if rd.after != "" {
		after = rd.after
	}
	switch {
	case first:
		hint := ""
		if what := compression(magic); what != "" {
			hint = " It looks like " + what + ": decompress it first, and upload the plain tar."
		}
		rd.problems.Stop(finding.NotATar, "", "This is not a tar file.%s", hint)
	case errors.Is(err, io.ErrUnexpectedEOF):
		rd.problems.Stop(finding.Truncated, rd.after,
			"The tar ends in the middle of a header or of padding, after %s. The file may not have been uploaded completely.",
			after)
	case errors.Is(err, tar.ErrFieldTooLong):
		rd.problems.Stop(finding.Corrupt, rd.after,
			"The tar is damaged after %s: what follows is a header of more than a mebibyte.", after)
	case errors.Is(err, tar.ErrHeader):
		rd.problems.Stop(finding.Corrupt, rd.after,
			"The tar is damaged after %s: what follows is not a valid header.", after)
	default:
		rd.problems.Stop(finding.Corrupt, rd.after, "The tar is damaged after %s: %s.", after, finding.Show(err.Error()))
	}
}

// compression recognises what people upload instead of a tar.
func compression(magic []byte) string {
	for _, known := range [][2]string{
		{"\x1f\x8b", "a gzip file"},
		{"PK\x03\x04", "a zip file"},
		{"BZh", "a bzip2 file"},
		{"\xfd7zXZ\x00", "an xz file"},
		{"\x28\xb5\x2f\xfd", "a zstd file"},
		{"7z\xbc\xaf\x27\x1c", "a 7-Zip file"},
	} {
		if bytes.HasPrefix(magic, []byte(known[0])) {
			return known[1]
		}
	}
	return ""
}

// drain reads what is left, so that the caller knows the object was readable to
// its end. After a proper end there are only zeros. An error of r has been taken
// for damage so far; it comes again here, and then nothing found before counts.
func (rd *reader) drain(ctx context.Context) error {
	if rd.known != nil && rd.cutShort() { // contents that nobody wants, and maybe terabytes of them
		if rd.src.err != nil {
			return rd.fault(rd.src.err)
		}
		return nil
	}
	buf := make([]byte, digest.Small)
	rest := after(rd.tar.offset)
	for {
		if err := ctx.Err(); err != nil {
			return rd.fault(err)
		}
		n, err := rd.tar.Read(buf)
		rest.write(buf[:n])
		switch {
		case rd.src.err != nil:
			return rd.fault(rd.src.err)
		case errors.Is(err, io.EOF):
			rd.behindTheEnd(rest)
			return nil
		case err != nil:
			return rd.fault(err)
		}
	}
}

func (rd *reader) behindTheEnd(rest trailing) {
	switch {
	case rd.cutShort():
	case rest.archive:
		rd.problems.Stop(finding.TrailingData, "", "Another tar follows the first one in the same file. "+
			"Unpack both, put all files of the bag into one directory, and pack that as one tar.")
	case rest.garbage:
		rd.warnings.Add(finding.TrailingData, "", "There is data after the end of the tar, which is ignored.")
	}
}

// cutShort says that reading stopped before the end of the archive.
func (rd *reader) cutShort() bool {
	return cutShort(rd.problems.Found) || cutShort(rd.textProblems.Found)
}

// cutShort says whether a bag with these problems was not read to its end. If
// so, that something was not found does not mean that it is not there.
func cutShort(problems []Finding) bool { return cutBy(problems) != "" }

func cutBy(problems []Finding) (code string) {
	for _, f := range problems {
		switch f.Code {
		case finding.NotATar, finding.Empty, finding.Truncated, finding.Corrupt, finding.TooManyFiles:
			return f.Code
		}
	}
	return ""
}

// Cut returns the code of the problem for which the bag could not be read to its
// end, blank if it was.
func (b *Bag) Cut() (code string) { return cutBy(b.Problems) }

// finish makes the bag out of what was gathered.
func (rd *reader) finish() *Bag {
	rd.unwrap()
	b := rd.bag
	rd.parseTagFiles()
	rd.judgeDuplicates()
	rd.undoDecoding()
	rd.fetched()
	rd.matchBackslashes()
	rd.matchForms()
	b.NoPayloadDir = !rd.payloadDir
	for _, f := range rd.mentioned {
		if f.Missing && f.isListed() {
			b.Files = append(b.Files, f)
		}
	}
	slices.Sort(b.Manifests)
	slices.Sort(b.TagManifests)

	b.Problems = slices.Concat(rd.problems.Found, rd.textProblems.Found)
	b.Warnings = slices.Concat(rd.warnings.Found, rd.textWarned.Found)
	b.More = rd.problems.More + rd.textProblems.More
	return b
}

func (rd *reader) parseTagFiles() {
	for _, f := range rd.bag.Files {
		raw, ok := rd.tagFiles[f.Path]
		if !ok {
			continue
		}
		enc := rd.encoding
		if f.Path == tagfile.Bagit {
			enc = tagfile.Encoding{}
		}
		tags := tagfile.ParseTags(f.Path, raw, enc, &rd.textProblems, &rd.textWarned)
		rd.bag.Tags = append(rd.bag.Tags, tags...)
	}
}

// undoDecoding helps bags by tools that do not encode the percent sign. If the
// decoded name is not in the tar, and the name as it was written is, then that
// was meant.
func (rd *reader) undoDecoding() {
	warned := map[string]bool{}
	for _, e := range rd.encoded {
		literal := rd.byPath[e.raw]
		if !e.decoded.Missing || literal == nil || literal.Missing {
			continue
		}
		digest, _ := e.decoded.said(e.expected.Algorithm, e.expected.TagManifest)
		if _, twice := literal.said(e.expected.Algorithm, e.expected.TagManifest); twice || digest != e.expected.Digest {
			continue
		}
		e.decoded.unexpect(e.expected.Algorithm, e.expected.TagManifest)
		literal.expect(e.expected)
		if !warned[e.manifest] {
			warned[e.manifest] = true
			rd.textWarned.Add(finding.ManifestPercent, e.manifest,
				"%s lists %s without encoding its percent sign as %%25; the name was taken as it is.", e.manifest, finding.Show(e.raw))
		}
	}
}

// judgeDuplicates takes files that one manifest lists twice, with the same digest,
// for errors or warnings. BagIt 1.0 allows each payload file once (RFC 8493, 3).
func (rd *reader) judgeDuplicates() {
	strict := !rd.bag.before10()
	for _, f := range rd.duplicates.Found {
		if strict && kindOf(f.Path) == Manifest {
			rd.textProblems.Add(f.Code, f.Path, "%s BagIt 1.0 allows each file once in a manifest.", f.Message)
		} else {
			rd.textWarned.Add(f.Code, f.Path, "%s", f.Message)
		}
	}
	if strict {
		rd.textProblems.More += rd.duplicates.More
	}
}

// matchForms gives what manifests say of a name that is not in the tar to the one file
// whose name is the same text in another of Unicode's forms: systems change the form
// as they store a name, and no person sees it. Where two files match, or the manifest
// lists the other name too, nobody can tell what was meant.
func (rd *reader) matchForms() {
	byForm := map[string][]*File{} // of names that are missed
	for _, f := range rd.mentioned {
		if f.Missing && f.isListed() && !tagfile.IsASCII([]byte(f.Path)) {
			byForm[norm.NFC.String(f.Path)] = nil
		}
	}
	if len(byForm) == 0 {
		return
	}
	for _, f := range rd.bag.Files {
		if tagfile.IsASCII([]byte(f.Path)) {
			continue
		}
		form := norm.NFC.String(f.Path)
		if same, missed := byForm[form]; missed {
			byForm[form] = append(same, f)
		}
	}
	warned := map[string]bool{}
	for _, f := range rd.mentioned {
		if same := byForm[norm.NFC.String(f.Path)]; f.Missing && len(same) == 1 {
			rd.takeOver(f, same[0], warned, func(manifest string) {
				rd.textWarned.Add(finding.ManifestForm, manifest, "%s lists %s, and the tar has %s: the same name in another form of Unicode. "+
					"It was taken for the same file, here and wherever else only the form differs.",
					manifest, ascii(f.Path), ascii(same[0].Path))
			})
		}
	}
}

// matchBackslashes finds the files that a manifest lists with backslashes in place of slashes,
// as programs on Windows write it. The manifest is wrong, which is said once, and not that
// each file is missing and each is unlisted.
func (rd *reader) matchBackslashes() {
	said := map[string]bool{}
	for _, missing := range []bool{false, true} { // first those that are there, which show what was meant
		for _, f := range rd.mentioned {
			if !f.Missing || !strings.Contains(f.Path, `\`) {
				continue
			}
			other := rd.byPath[naming.WithoutDot(strings.ReplaceAll(f.Path, `\`, "/"))]
			if other == nil || other.Missing != missing || missing && len(said) == 0 {
				continue
			}
			rd.takeOver(f, other, said, func(manifest string) {
				rd.textProblems.Add(finding.ManifestBackslash, manifest, "%s lists %s with backslashes between the parts of the path, here and maybe elsewhere. "+
					"BagIt has slashes there on all systems: %s. Make the manifest again with a program that writes slashes.",
					manifest, strings.ReplaceAll(finding.Show(f.Path), `\\`, `\`), finding.Show(other.Path))
			})
		}
	}
}

// takeOver moves what manifests say of a missing file to another one. say is called once for
// each manifest.
func (rd *reader) takeOver(missing, f *File, said map[string]bool, say func(manifest string)) {
	for _, e := range missing.Expected() {
		if _, twice := f.said(e.Algorithm, e.TagManifest); twice {
			continue
		}
		if !rd.expect(f, e) {
			return
		}
		missing.unexpect(e.Algorithm, e.TagManifest)
		if name := e.Manifest(); !said[name] {
			said[name] = true
			say(name)
		}
	}
}
