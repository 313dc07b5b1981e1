package bag

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// checkBag holds for whatever was read.
func checkBag(t *testing.T, b *Bag) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range b.Files {
		if fault := naming.PathFault(f.Path); fault != "" {
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
	must.Do(t, WriteInventory(&out, b))
	again := must.Get(ReadInventory(&out))(t)
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
		data := must.Get(s.Bytes())(f)
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
		again := must.Get(Read(t.Context(), rest, ReadOptions{PartSize: o.PartSize, Resume: &c, Reopen: contentIn(data)}))(t)
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
	j := must.Get(json.Marshal(c))(t)
	var out Checkpoint
	must.Do(t, json.Unmarshal(j, &out))
	return out
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
	data := must.Get(bagtest.Spec{
		Files: []bagtest.File{}, Manifests: []string{}, TagManifests: []string{}, Tags: omitted,
		Unlisted: []bagtest.File{
			{Path: "manifest-md5.txt", Content: md5 + "  data/gr\xfc\xdfe\n" + md5 + "  data/100%25\n"},
			{Path: "fetch.txt", Content: "https://example.org/x 0 data/gr\xfc\xdfe\n"},
			{Path: "bagit.txt", Content: "BagIt-Version: 0.97\nTag-File-Character-Encoding: ISO-8859-1\n"},
			{Path: "data/grüße"},
			{Path: "data/100%"},
		},
		Entries: []bagtest.Entry{{Name: "sample-bag/data/", Type: '5'}, {Name: "./", Type: '5'}},
	}.Bytes())(f)
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
			rd := newReader(t.Context(), nil, ReadOptions{MaxFiles: 100})
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
		if diff := cmp.Diff(rd.textProblems.Found, again.textProblems.Found); diff != "" {
			t.Error(diff)
		}
		for _, l := range rd.fetchLines {
			if naming.PathFault(l.path) != "" || kindOf(l.path) != PayloadFile {
				t.Errorf("line %d: %q", l.number, l.path)
			}
		}
		rd.finish()
	})
}

func FuzzProfile(f *testing.F) {
	for _, name := range profile.BuiltIn() {
		data := must.Get(os.ReadFile(filepath.Join("profile", "profiles", name+".json")))(f)
		f.Add(data)
	}
	for _, seed := range []string{
		`{}`, `null`, `[1]`, `{"Bag-Info": {"": null, "x": {"required": true, "recommended": true, "repeatable": false, "values": [""], "y": {}}}}`,
		`{"Payload-Files-Required": ["a/", "[!]"], "Payload-Files-Allowed": ["*", "[a-", "?"], "Data-Empty": true, "Fetch.txt-Required": true}`,
		`{"Tag-Files-Allowed": ["[z-a]**[]"], "Serialization": null, "Accept-BagIt-Version": [], "Other-Info": {"bagit.txt": {"BagIt-Version": {}}, "x": 1}}`,
	} {
		f.Add([]byte(seed))
	}
	tar := must.Get(bagtest.Spec{Unlisted: []bagtest.File{{Path: "fetch.txt", Content: "x"}, {Path: "data/[z-a]", Content: "x"}}}.Bytes())(f)
	b := must.Get(Read(f.Context(), bytes.NewReader(tar), ReadOptions{}))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profile.Load(bytes.NewReader(data), "p.json")
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

// Whatever lines there are, they are an inventory or refused as one.
func FuzzInventory(f *testing.F) {
	file := `{"path":"data/a","kind":"payload_file","offset":512,"size":1,"digests":{"md5":"` + strings.Repeat("0", 32) + `","sha1":"` +
		strings.Repeat("0", 40) + `","sha256":"` + strings.Repeat("0", 64) + `","sha512":"` + strings.Repeat("0", 128) + `"}}`
	f.Add(`{"version":1,"top_dir":"b","files":1}` + "\n" + file + "\n" + `{"end":true,"files":1}` + "\n")
	f.Add(`{"version":1,"files":0,"tags":[{"file":"bagit.txt","name":"x","value":"y"}]}` + "\n" + `{"end":true,"files":0}` + "\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, lines string) {
		var z bytes.Buffer
		w := must.Get(zstd.NewWriter(&z))(t)
		must.Get(w.Write([]byte(lines)))(t)
		must.Do(t, w.Close())
		b, err := ReadInventory(&z)
		if err != nil {
			if !errors.Is(err, ErrInventory) {
				t.Errorf("error %v", err)
			}
			return
		}
		b.Validate(nil)
		for _, file := range b.Files {
			if naming.PathFault(file.Path) != "" || file.Offset < 0 || file.Size < 0 {
				t.Errorf("file %+v", file)
			}
		}
	})
}
