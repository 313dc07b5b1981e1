package bag

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag/bagtest"
)

// checkBag holds for whatever was read.
func checkBag(t *testing.T, b *Bag) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range b.Files {
		if fault := pathFault(f.Path); fault != "" {
			t.Errorf("path %q: %s", f.Path, fault)
		}
		if seen[f.Path] {
			t.Errorf("%q twice", f.Path)
		}
		seen[f.Path] = true
		if f.Missing && (f.Size != 0 || len(f.Expected()) == 0) {
			t.Errorf("%q is missing, and has %d bytes and %d digests", f.Path, f.Size, len(f.Expected()))
		}
	}
	v := b.Validate(nil)
	if v.Valid != (len(v.Errors) == 0) || v.Valid && len(b.Problems) > 0 {
		t.Errorf("verdict %+v", v)
	}
	for _, f := range append(v.Errors, v.Warnings...) {
		if !utf8.ValidString(f.Message) || len(f.Message) > 4000 || f.Code == "" || strings.Contains(f.Message, "%!") {
			t.Errorf("finding %q", f)
		}
	}
	var out bytes.Buffer
	if err := WriteInventory(&out, b); err != nil {
		t.Fatal(err)
	}
	again, err := ReadInventory(&out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func FuzzRead(f *testing.F) {
	specs := []bagtest.Spec{
		{},
		{Profile: bagtest.BTR, ManifestsFirst: true},
		{Name: "./" + strings.Repeat("long", 50), Files: []bagtest.File{{Path: "data/é", Content: "x"}}},
		{ModTime: time.Date(12000, 1, 1, 0, 0, 0, 1, time.UTC)},
		{Entries: []bagtest.Entry{
			{Name: "sample-bag/l", Type: '2', Linkname: "x"},
			{Name: "sample-bag/../x", Type: '0', Content: "x"},
			{Name: "x", Type: '0'},
		}},
	}
	for _, s := range specs {
		data, err := s.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x1f\x8b"))
	f.Add(sampleOfEverything(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var points []Checkpoint
		var all Checkpoint
		o := ReadOptions{
			PartSize:        func(int64) int64 { return 1000 },
			CheckpointBytes: 1,
			Checkpoint: func(_ context.Context, c Checkpoint) error {
				all.Append(c)
				points = append(points, copied(t, all))
				return nil
			},
		}
		b, err := Read(t.Context(), bytes.NewReader(data), o)
		if err != nil {
			t.Fatalf("an error for what is in the bytes: %v", err)
		}
		checkBag(t, b)
		for _, file := range b.Files {
			if !file.Missing && file.Offset+file.Size > int64(len(data)) {
				t.Errorf("%s lies behind the end", file.Path)
			}
		}
		if len(points) == 0 {
			return
		}
		c := points[len(points)/2]
		rest := bytes.NewReader(data[min(c.Offset, int64(len(data))):])
		again, err := Read(t.Context(), rest, ReadOptions{PartSize: o.PartSize, Resume: &c, Reopen: contentIn(data)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("reading on: %s", diff)
		}
	})
}

func contentIn(data []byte) func(*File) (io.ReadCloser, error) {
	return func(f *File) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data[f.Offset : f.Offset+f.Size])), nil
	}
}

func copied(t *testing.T, c Checkpoint) Checkpoint {
	t.Helper()
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var out Checkpoint
	if err := json.Unmarshal(j, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func FuzzManifest(f *testing.F) {
	const md5 = "d41d8cd98f00b204e9800998ecf8427e"
	for _, seed := range []string{
		"", md5 + "  data/a\n", md5 + " *data/a\r\n" + md5 + "\tdata/b\r", "\ufeff" + md5 + " ./data/%25%0A%0d",
		md5 + "  ../x\n", "zz  data/a\n", md5 + "\n", md5 + "  data/\xff\n", md5 + "  data/a\n" + strings.ToUpper(md5) + "  data/a\n",
		"\xfe\xff\x00d",
	} {
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		parse := func(cut int) (out []string, problems, warnings findings) {
			m := manifestParser{name: "manifest-md5.txt", algorithm: MD5, problems: &problems, warnings: &warnings}
			m.entry = func(_ int, path []byte, raw string, e Expected) {
				if pathFault(string(path)) != "" || len(e.Digest) != 32 || strings.ToLower(e.Digest) != e.Digest {
					t.Errorf("entry %q %q", path, e.Digest)
				}
				out = append(out, e.Digest+string(path)+raw)
			}
			m.setup(tagEncoding{})
			given := bytes.Clone(data)
			m.write(given[:cut])
			m.write(given[cut:])
			m.end()
			if !bytes.Equal(given, data) {
				t.Error("the parser changed what the hashes are going to read")
			}
			return out, problems, warnings
		}
		// where blocks end must not matter
		out1, problems1, warnings1 := parse(0)
		out2, problems2, warnings2 := parse(max(0, min(cut, len(data))))
		if diff := cmp.Diff(out1, out2); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(problems1.list, problems2.list); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(warnings1.list, warnings2.list); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzTags(f *testing.F) {
	for _, seed := range []string{
		"", "A: 1\n", "A: 1\n  two\r\n\tthree\rB:\n", "\ufeffA: x", "no label", " folded", "A: \x00", "A: \xff", "::\n", "A :b\n", "\xfe\xff\x00A\x00:",
	} {
		for enc := range 8 {
			f.Add([]byte(seed), enc)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, which int) {
		var encodings []tagEncoding
		for _, name := range []string{"UTF-8", "ISO-8859-1", "UTF-16", "UTF-16LE", "Shift_JIS", "windows-1252", "ISO-2022-JP", "UTF-32"} {
			enc, ok := encodingNamed(name)
			if !ok {
				t.Fatal(name)
			}
			encodings = append(encodings, enc)
		}
		var problems, warnings findings
		for _, tag := range parseTags("bag-info.txt", data, encodings[uint(which)%8], &problems, &warnings) {
			if !utf8.ValidString(tag.Name+tag.Value) || tag.Name == "" || strings.TrimSpace(tag.Value) != tag.Value {
				t.Errorf("tag %q", tag)
			}
			if i := strings.IndexFunc(tag.Name+tag.Value, func(r rune) bool { return isControl(r) && r != '\t' }); i >= 0 {
				t.Errorf("control character in %q", tag)
			}
		}
	})
}

// sampleOfEverything has the files that are read, in an order and an encoding
// that make it hard.
func sampleOfEverything(f *testing.F) []byte {
	f.Helper()
	const md5 = "d41d8cd98f00b204e9800998ecf8427e"
	var omitted []bagtest.Tag
	for _, name := range []string{"BagIt-Version", "Tag-File-Character-Encoding"} {
		omitted = append(omitted, bagtest.Tag{File: "bagit.txt", Name: name, Value: bagtest.Omit})
	}
	data, err := bagtest.Spec{
		Files: []bagtest.File{}, Manifests: []string{}, TagManifests: []string{}, Tags: omitted,
		Unlisted: []bagtest.File{
			{Path: "manifest-md5.txt", Content: md5 + "  data/gr\xfc\xdfe\n" + md5 + "  data/100%25\n"},
			{Path: "fetch.txt", Content: "https://example.org/x 0 data/gr\xfc\xdfe\n"},
			{Path: "bagit.txt", Content: "BagIt-Version: 0.97\nTag-File-Character-Encoding: ISO-8859-1\n"},
			{Path: "data/grüße"},
			{Path: "data/100%"},
		},
		Entries: []bagtest.Entry{{Name: "sample-bag/data/", Type: '5'}, {Name: "./", Type: '5'}},
	}.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	return data
}

func FuzzFetch(f *testing.F) {
	for _, seed := range []string{
		"", "https://example.org/a 1 data/a\n", "http://x - data/a b%0A\r\nftp://y\t12\t./data/c\r", "x", "a 1 ../b\n", "http://[ 1 data/a\n", "http://x 1 data/\xff\n",
	} {
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		parse := func(cut int) *reader {
			rd := newReader(nil, ReadOptions{MaxFiles: 100})
			write, done := rd.fetchFile()
			write(bytes.Clone(data[:cut]))
			write(bytes.Clone(data[cut:]))
			done()
			return rd
		}
		rd := parse(0)
		again := parse(max(0, min(cut, len(data))))
		if diff := cmp.Diff(rd.fetchLines, again.fetchLines, cmp.AllowUnexported(fetchLine{})); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(rd.textProblems.list, again.textProblems.list); diff != "" {
			t.Error(diff)
		}
		for _, l := range rd.fetchLines {
			if pathFault(l.path) != "" || kindOf(l.path) != PayloadFile {
				t.Errorf("line %d: %q", l.number, l.path)
			}
		}
		rd.finish()
	})
}

func FuzzProfile(f *testing.F) {
	for _, name := range BuiltInProfiles() {
		data, err := profileFiles.ReadFile("profiles/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		`{}`, `null`, `[1]`, `{"Bag-Info": {"": null, "x": {"required": true, "recommended": true, "repeatable": false, "values": [""], "y": {}}}}`,
		`{"Payload-Files-Required": ["a/", "[!]"], "Payload-Files-Allowed": ["*", "[a-", "?"], "Data-Empty": true, "Fetch.txt-Required": true}`,
		`{"Tag-Files-Allowed": ["[z-a]**[]"], "Serialization": null, "Accept-BagIt-Version": [], "Other-Info": {"bagit.txt": {"BagIt-Version": {}}, "x": 1}}`,
	} {
		f.Add([]byte(seed))
	}
	tar, err := bagtest.Spec{Unlisted: []bagtest.File{{Path: "fetch.txt", Content: "x"}, {Path: "data/[z-a]", Content: "x"}}}.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	b, err := Read(f.Context(), bytes.NewReader(tar), ReadOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := LoadProfile(bytes.NewReader(data), "p.json")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "profile p.json: ") {
				t.Errorf("error %q", err)
			}
			return
		}
		v := b.Validate(p)
		if v.Valid || v.Profile == "" {
			t.Errorf("verdict %+v", v) // whatever the profile says, an unlisted file is an error
		}
		for _, finding := range append(v.Errors, v.Warnings...) {
			badVerb := strings.Contains(finding.Message, "%!") && !bytes.Contains(data, []byte("!")) // which the profile may have itself
			if !utf8.ValidString(finding.Message) || badVerb {
				t.Errorf("finding %q", finding)
			}
		}
	})
}

// The quick matcher says what a simple one says.
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{{"a*b?c", "aXXbYc"}, {"[!a-c]*[]]", "d]"}, {"[", "["}, {"**", ""}, {"[a-]", "-"}, {"[!", "[!"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 12 {
			return // the simple one takes exponential time
		}
		if got, want := glob(pattern, name), simpleGlob([]rune(pattern), []rune(name)); got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, name, got)
		}
	})
}

func simpleGlob(p, n []rune) bool {
	switch {
	case len(p) == 0:
		return len(n) == 0
	case p[0] == '*':
		return simpleGlob(p[1:], n) || len(n) > 0 && simpleGlob(p, n[1:])
	case len(n) == 0:
		return false
	}
	width, ok := globOne(p, n[0])
	return ok && simpleGlob(p[width:], n[1:])
}

// Whatever lines there are, they are an inventory or refused as one.
func FuzzInventory(f *testing.F) {
	file := `{"path":"data/a","kind":"payload_file","offset":512,"size":1,"digests":{"md5":"` + strings.Repeat("0", 32) + `","sha1":"` +
		strings.Repeat("0", 40) + `","sha256":"` + strings.Repeat("0", 64) + `","sha512":"` + strings.Repeat("0", 128) + `"}}`
	f.Add(`{"version":1,"top_dir":"b","files":1}` + "\n" + file + "\n" + `{"end":true,"files":1}` + "\n")
	f.Add(`{"version":1,"files":0,"tags":[{"file":"bagit.txt","name":"x","value":"y"}]}` + "\n" + `{"end":true,"files":0}` + "\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, lines string) {
		var z bytes.Buffer
		w, err := zstd.NewWriter(&z)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(lines)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := ReadInventory(&z)
		if err != nil {
			if !errors.Is(err, ErrInventory) {
				t.Errorf("error %v", err)
			}
			return
		}
		b.Validate(nil)
		for _, file := range b.Files {
			if pathFault(file.Path) != "" || file.Offset < 0 || file.Size < 0 {
				t.Errorf("file %+v", file)
			}
		}
	})
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a.tar", "a.b01.of02.tar", ".tar", "a.b.of.tar", "a.b1.of2", "x.b01.of02.b03.of04.tar", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := Name(key)
		if !strings.HasPrefix(key, name) {
			t.Errorf("Name(%q) = %q", key, name)
		}
		if rest := key[len(name):]; !regexp.MustCompile(`^(\.b[0-9]+\.of[0-9]+)?(\.tar)?$`).MatchString(rest) {
			t.Errorf("Name(%q) = %q", key, name)
		}
	})
}
