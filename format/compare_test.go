package format

import (
	"bytes"
	"compress/flate"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/richardlehane/siegfried"
	"github.com/richardlehane/siegfried/pkg/config"
	"github.com/richardlehane/siegfried/pkg/pronom"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A puid is a format of a small set of signatures.
type puid struct {
	name, mime, ext string
	begins          []string // patterns of PRONOM's in hexadecimal digits, each at the offset below
	at              int
	over            []int // formats that it excludes
}

// setOf builds a signature file, as roy does, of formats fmt/1 and so on.
func setOf(t testing.TB, number int, formats []puid) []byte {
	t.Helper()
	var sigs, list strings.Builder
	id := 0
	for i, f := range formats {
		if f.name == "" {
			continue
		}
		fmt.Fprintf(&list, `<FileFormat ID="%d" MIMEType="%s" Name="%s" PUID="fmt/%d">`, i+1, f.mime, f.name, i+1)
		for _, hex := range f.begins {
			id++
			fmt.Fprintf(&list, `<InternalSignatureID>%d</InternalSignatureID>`, id)
			fmt.Fprintf(&sigs, `<InternalSignature ID="%d" Specificity="Specific"><ByteSequence Reference="BOFoffset"><SubSequence Position="1" SubSeqMinOffset="%d" SubSeqMaxOffset="%d"><Sequence>%s</Sequence></SubSequence></ByteSequence></InternalSignature>`,
				id, f.at, f.at, hex)
		}
		if f.ext != "" {
			fmt.Fprintf(&list, `<Extension>%s</Extension>`, f.ext)
		}
		for _, j := range f.over {
			fmt.Fprintf(&list, `<HasPriorityOverFileFormatID>%d</HasPriorityOverFileFormatID>`, j+1)
		}
		list.WriteString(`</FileFormat>`)
	}
	dir, file := t.TempDir(), fmt.Sprintf("DROID_SignatureFile_V%d.xml", number)
	config.SetHome(dir)
	must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprintf(`<?xml version="1.0"?><FFSignatureFile Version="%d" xmlns="http://www.nationalarchives.gov.uk/pronom/SignatureFile"><InternalSignatureCollection>%s</InternalSignatureCollection><FileFormatCollection>%s</FileFormatCollection></FFSignatureFile>`,
		number, &sigs, &list)), 0o600))
	p := must.Get(pronom.New(config.SetDroid(file), config.SetNoContainer(), config.SetNoReports()))(t)
	sf := siegfried.New()
	must.Do(t, sf.Add(p))
	var out bytes.Buffer
	must.Do(t, sf.SaveWriter(&out))
	return out.Bytes()
}

// found identifies a small file without a child.
func found(sf *siegfried.Siegfried, name, content string) Result {
	if content == "" {
		return byExtension(name, Empty, "")
	}
	return choose(name, ask(sf, newSource(subject{name: name, size: int64(len(content)), head: []byte(content)}, 1<<20, func(span) []byte { return nil }), name))
}

// aFormat makes up a format whose signature files of two letters often match.
func aFormat(r *rand.Rand, i int) puid {
	f := puid{name: fmt.Sprint("Format ", i), at: r.IntN(2)}
	for range r.IntN(3) {
		hex := ""
		for range 1 + r.IntN(3) {
			hex += []string{"41", "42"}[r.IntN(2)]
		}
		f.begins = append(f.begins, hex)
	}
	f.ext = []string{"", "a", "b"}[r.IntN(3)]
	f.mime = []string{"", fmt.Sprintf("x/%d", i), fmt.Sprintf("x/%d", i)}[r.IntN(3)]
	for j := range i {
		if r.IntN(3) == 0 {
			f.over = append(f.over, j)
		}
	}
	return f
}

// What is not affected is identified as before: checked with all files of four letters,
// for many pairs of sets in which formats are added, removed and changed.
func TestUnaffectedFilesKeepTheirFormats(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	changed, spared := 0, 0
	for round := range 150 {
		old := make([]puid, 7)
		for i := range 5 {
			old[i] = aFormat(r, i)
		}
		next := slices.Clone(old)
		for range 1 + r.IntN(2) {
			i := r.IntN(len(next))
			if next[i] = aFormat(r, i); r.IntN(5) == 0 {
				next[i] = puid{}
			}
		}
		was, is := setOf(t, 1001, old), setOf(t, 1002, next)
		d := must.Get(Compare(was, is))(t)
		before, after := must.Get(load(was))(t), must.Get(load(is))(t)
		for n := range 1 << 4 {
			content := strings.NewReplacer("0", "A", "1", "B").Replace(fmt.Sprintf("%04b", n))
			for _, name := range []string{"x.a", "x.b", "x"} {
				x, y := found(before, name, content), found(after, name, content)
				differs := x.PUID != y.PUID || x.MIME != y.MIME || x.Name != y.Name || x.Method != y.Method || x.Reason != y.Reason
				switch why := d.Affects(x.PUID, x.Method, name); {
				case differs && why == "":
					t.Fatalf("seed %d, round %d: %s with %s was %+v and is %+v, and is not affected\nold %+v\nnew %+v", seed, round, name, content, x, y, old, next)
				case differs:
					changed++
				case why == "":
					spared++
				}
			}
		}
	}
	t.Logf("%d changed, %d spared", changed, spared)
	if changed < 300 || spared < 300 {
		t.Errorf("%d files have changed and %d were spared: the test says little", changed, spared)
	}
}

// small are two sets as tests of other packages use them, in testdata.
func small() (old, next []puid) {
	old = []puid{
		{name: "PDF", mime: "application/pdf", ext: "pdf", begins: []string{"25504446"}},
		{name: "Photo", mime: "image/x", ext: "pho", begins: []string{"50484F54"}},
		{name: "Log", mime: "text/x-log", ext: "log"},
		{name: "Table", mime: "text/csv", ext: "csv", begins: []string{"544142"}},
		{name: "Song", mime: "audio/x", ext: "son", begins: []string{"534F4E47"}},
	}
	next = append(slices.Clone(old), puid{name: "PDF 9", mime: "application/pdf", begins: []string{"255044462D39"}, over: []int{0}},
		puid{name: "Letter", mime: "text/x-letter", begins: []string{"44656172"}})
	next[3].begins = []string{"544143"}
	return old, next
}

var update = flag.Bool("update", false, "write the signature files in testdata")

// The sets that other packages test with are these.
func TestSmallSetsAreFresh(t *testing.T) {
	old, next := small()
	for path, built := range map[string][]byte{"testdata/v1001.sig": setOf(t, 1001, old), "testdata/v1002.sig": setOf(t, 1002, next)} {
		if *update {
			must.Do(t, os.WriteFile(path, built, 0o600))
		}
		d := must.Get(Compare(must.Get(os.ReadFile(path))(t), built))(t)
		if d.Old != d.New || len(d.Added)+len(d.Removed)+len(d.Changed) > 0 {
			t.Errorf("%s is another set (%s, %s %v): run go test ./format -run SmallSets -update", path, d.Old, d.New, d.Changed)
		}
	}
}

// A format that is new concerns files that no signature has matched, files that may
// match it too, and no others.
func TestAffectedFormats(t *testing.T) {
	old := []puid{
		{name: "PDF", mime: "application/pdf", ext: "pdf", begins: []string{"25504446"}},
		{name: "Photo", mime: "image/x", ext: "pho", begins: []string{"50484F54"}},
		{name: "Log", mime: "text/x-log", ext: "log"},
		{name: "Table", mime: "text/csv", ext: "csv", begins: []string{"54{2}4C"}},
	}
	with := func(change func([]puid)) []puid {
		next := append(slices.Clone(old), puid{})
		change(next)
		return next
	}
	for name, c := range map[string]struct {
		next []puid
		want string // those affected, of the formats above and of files without one
	}{
		"nothing":         {with(func([]puid) {}), ""},
		"another name":    {with(func(f []puid) { f[1].name = "Photograph" }), "fmt/2"},
		"another pattern": {with(func(f []puid) { f[1].begins = []string{"50484F55"} }), "fmt/2 fmt/3 none"},
		"a newer PDF": {with(func(f []puid) {
			f[4] = puid{name: "PDF 9", mime: "application/pdf", begins: []string{"255044462D39"}, over: []int{0}}
		}), "fmt/1 fmt/3 none"},
		"an overlap":       {with(func(f []puid) { f[4] = puid{name: "T", mime: "x/t", begins: []string{"54{2}4D"}, at: 0} }), "fmt/3 fmt/4 none"},
		"extension gained": {with(func(f []puid) { f[4] = puid{name: "New log", mime: "text/y", ext: "log"} }), "fmt/3"},
		"removed":          {with(func(f []puid) { f[3] = puid{} }), "fmt/3 fmt/4 none"},
	} {
		d := must.Get(Compare(setOf(t, 1, old), setOf(t, 2, c.next)))(t)
		var got []string
		for _, f := range []struct{ puid, method, name string }{
			{"fmt/1", "signature", "a.pdf"}, {"fmt/2", "signature", "a.pho"}, {"fmt/3", "extension", "a.log"}, {"fmt/4", "signature", "a.csv"}, {"", "extension", "a"},
		} {
			if d.Affects(f.puid, f.method, f.name) != "" {
				got = append(got, strings.TrimSpace(map[bool]string{true: "none"}[f.puid == ""]+f.puid))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: affected are %q, want %q", name, got, c.want)
		}
	}
}

// The built-in signatures are those of PRONOM, and all can be compared.
func TestBuiltInSignaturesCompare(t *testing.T) {
	d := must.Get(Compare(nil, nil))(t)
	if len(d.Added)+len(d.Removed)+len(d.Changed) > 0 || d.Affects("fmt/18", "signature", "a.pdf") != "" || d.Affects("", "extension", "a") != "" {
		t.Errorf("the same signatures differ: %v %v %v", d.Added, d.Removed, d.Changed)
	}
	for id, container := range map[string]bool{"fmt/18": false, "fmt/412": true, "fmt/40": true} {
		n := 0
		for text := range d.old[id].signatures {
			if strings.HasPrefix(text, "container") {
				n++
			}
		}
		if len(d.old[id].signatures) == 0 || (n > 0) != container {
			t.Errorf("%s has %d signatures, %d of containers", id, len(d.old[id].signatures), n)
		}
	}
}

// A file that is none of siegfried's, or is cut short, is refused and named so.
func TestBadSignatureFilesAreRefused(t *testing.T) {
	good := setOf(t, 1, []puid{{name: "A", ext: "a"}})
	for name, file := range map[string][]byte{"text": []byte("no signatures"), "cut": good[:len(good)-20], "magic": append([]byte("sf\x00\xff"), good[4:40]...)} {
		if _, err := load(file); err == nil || !strings.Contains(err.Error(), ErrSignatures.Error()) {
			t.Errorf("%s: %v, want %v", name, err, ErrSignatures)
		}
	}
	// Inside of what is compressed, anything may be wrong: it is refused, or read.
	const head = 6 // what it is, and two bytes of a version
	inside := must.Get(io.ReadAll(flate.NewReader(bytes.NewReader(good[head:]))))(t)
	for i := range inside {
		var file bytes.Buffer
		file.Write(good[:head])
		w := must.Get(flate.NewWriter(&file, flate.BestSpeed))(t)
		must.Get(w.Write(slices.Concat(inside[:i], []byte{inside[i] ^ 0xff}, inside[i+1:])))(t)
		must.Do(t, w.Close())
		if _, err := load(file.Bytes()); err != nil && !errors.Is(err, ErrSignatures) {
			t.Errorf("byte %d: %v, want %v", i, err, ErrSignatures)
		}
	}
}
