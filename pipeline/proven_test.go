package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/testenv"
)

// motley is a bag with many kinds of content, of which some no manifest covers.
func (a *archive) motley(name string) []byte {
	return a.bag(bagtest.Spec{
		Name: name,
		Files: []bagtest.File{
			{Path: "data/empty"},
			{Path: "data/small.bin", Size: 700},
			{Path: "data/other.bin", Size: 15_000},
			{Path: "data/" + strings.Repeat("long", 40) + ".bin", Size: 3000}, // its name is in a PAX record, of which there is no checksum
			{Path: "data/middling.bin", Size: 120_000},
			{Path: "data/large.bin", Size: 400_000},
		},
		Unlisted: []bagtest.File{{Path: "notes/unlisted.txt", Size: 2000}},
	})
}

// ways are what a bucket may tell of its objects: enough to prove what was read of
// them, or nothing.
func ways() map[string]func(*http.Response) {
	return map[string]func(*http.Response){
		"by its checksum": nil,
		"by two reads": func(r *http.Response) {
			if r.Request.Method == http.MethodHead && strings.HasSuffix(r.Request.URL.Path, ".tar") {
				r.Header.Set("x-amz-server-side-encryption", "aws:kms")
				for name := range r.Header {
					if strings.HasPrefix(name, "X-Amz-Checksum") {
						r.Header.Del(name)
					}
				}
			}
		},
	}
}

// truth is what there is to be known of a tar.
func truth(t *testing.T, tar []byte) *bag.Bag {
	t.Helper()
	b, err := bag.Read(t.Context(), bytes.NewReader(tar), bag.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A byte that is flipped on the way from the receiving bucket is nobody's fault,
// wherever in the tar it is: the bag is ingested, with the bytes that it has.
func TestFlippedByteIsNotTheBags(t *testing.T) {
	t.Parallel()
	for name, answers := range ways() { //nolint:bodyclose // the proxy closes it
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			w := a.wired()
			w.answers = answers
			a.exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '10 milliseconds'`)
			some := truth(t, a.motley("bag-00"))
			var places []int64
			for _, f := range some.Files {
				places = append(places, f.Offset-512, f.Offset-400) // its header
				if f.Size > 0 {
					places = append(places, f.Offset+f.Size/2)
				}
			}
			size := len(a.motley("bag-00"))
			places = append(places, some.Files[1].Offset+some.Files[1].Size+3, int64(size-1000)) // padding, and the end
			for range 10 {
				places = append(places, rand.Int64N(int64(size)))
			}
			rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
			places = places[:max(10, testenv.Soak(len(places)))]
			testenv.Soaked(t, len(places), "bytes flipped, each in a bag of its own, "+name)
			tars, ids := map[int64][]byte{}, map[int64]int64{}
			for i, at := range places {
				bagName := fmt.Sprintf("bag-%02d", i)
				tar := a.motley(bagName)
				id := a.deposit(bagName+".tar", tar)
				tars[id], ids[id] = tar, at
				w.next(spoilt{object: "/" + bagName + ".tar", at: at, how: "flip", times: 1})
			}
			a.work()
			if n := w.left(); n > 0 {
				t.Errorf("%d bytes were not flipped", n)
			}
			for id, tar := range tars {
				if item := a.item(id); item.Status != "Success" {
					t.Errorf("with byte %d of %d flipped: %+v", ids[id], size, item)
					continue
				}
				a.asItWas(id, truth(t, tar))
			}
		})
	}
}

// What was read wrongly before a checkpoint is found out when another attempt goes on
// from there, and the tar is read from its start.
func TestCheckpointOfBytesThatWereFlippedIsDiscarded(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	a := newArchive(t)
	a.deps.checkpointBytes = 8 * mib
	var files []bagtest.File
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, bagtest.File{Path: "data/" + name, Size: 10 * mib})
	}
	tar := a.bag(bagtest.Spec{Name: "large", Files: files})
	id := a.deposit("large.tar", tar)
	w := a.wired()
	w.next(spoilt{object: "/large.tar", at: 5 * mib, how: "flip", times: 1})
	w.next(spoilt{object: "/large.tar", at: 25 * mib, how: "cut", times: 5}) // until the attempt gives up
	engine := a.engine()
	a.one(engine, "Receive")
	if item := a.item(id); item.Stage != "Receive" || item.Status != "Pending" || w.left() > 1 {
		t.Fatalf("item = %+v, %d answers not spoilt", item, w.left())
	}
	a.exec(`UPDATE work_items SET run_at = now()`)
	a.one(engine, "Receive")
	a.one(engine, "Validate")
	if item := a.item(id); item.Stage != "Reingest Check" {
		t.Errorf("item = %+v", item)
	}
	for _, said := range []string{"reading on from a checkpoint", "does not confirm what was read"} {
		if !strings.Contains(a.log.String(), said) {
			t.Errorf("the log does not say %q", said)
		}
	}
}

// asItWas fails the test unless an item's files are on record with their right digests,
// and their copies have the right bytes.
func (a *archive) asItWas(id int64, b *bag.Bag) {
	a.t.Helper()
	object := a.item(id).ObjectIdentifier
	files := 0
	for _, f := range b.Files {
		if !f.Preservable() {
			continue
		}
		files++
		file := object + "/" + f.Path
		for _, algorithm := range []bag.Algorithm{bag.MD5, bag.SHA1, bag.SHA256, bag.SHA512} {
			if got := value[string](a, `SELECT coalesce(min(c.digest), '') FROM checksums c JOIN generic_files g ON g.id = c.generic_file_id
				WHERE g.identifier = $1 AND c.algorithm = $2`, file, string(algorithm)); got != f.Digests.Hex(algorithm) {
				a.t.Errorf("%s of %s is %s on record, and should be %s", algorithm, file, got, f.Digests.Hex(algorithm))
			}
		}
		uuid := value[string](a, `SELECT coalesce(min(uuid::text), '') FROM generic_files WHERE identifier = $1`, file)
		sum := sha256.Sum256(a.content(a.deps.Targets["Standard-VA"], uuid)) // the other copy is archived
		if hex.EncodeToString(sum[:]) != f.Digests.Hex(bag.SHA256) {
			a.t.Errorf("%s has other bytes", file)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM generic_files WHERE identifier LIKE $1 || '/%'`, object); n != files {
		a.t.Errorf("%s has %d files on record, and should have %d", object, n, files)
	}
}

// A bag that is broken is so for the reason that it has, wherever that is. It is read
// twice where its bucket does not tell that it was read right.
func TestBrokenBagIsTheBags(t *testing.T) {
	t.Parallel()
	for name, answers := range ways() { //nolint:bodyclose // the proxy closes it
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			w := a.wired()
			w.answers = answers
			type broken struct{ code, note, stage, key string }
			want := map[int64]broken{}
			for i := 0; len(want) < 12; i++ {
				bagName := fmt.Sprintf("bag-%02d", i)
				tar := a.motley(bagName)
				switch at := rand.IntN(len(tar)); i % 4 {
				case 0:
					tar = tar[:at]
				default:
					tar[at] ^= 0x10
				}
				b := truth(t, tar)
				v := b.Validate(nil)
				if v.Valid { // what was changed is in none of the manifests
					continue
				}
				key := bagName + ".tar"
				is := broken{"invalid-bag", findings(v.Errors, v.More), "Validate", key}
				if code := b.Cut(); code != "" {
					is.code, is.stage = code, "Receive"
				}
				want[a.deposit(key, slices.Clone(tar))] = is
			}
			a.work()
			reads := map[string]int{"by its checksum": 1, "by two reads": 2}[name]
			for id, is := range want {
				item := a.item(id)
				if item.Status != "Failed" || item.Stage != is.stage || item.ErrorCode != is.code || item.Note != is.note {
					t.Errorf("item = %+v, want Failed, %s: %s", item, is.code, is.note)
				}
				if n := w.count("GET", "/"+is.key); n != reads {
					t.Errorf("%s was read %d times, want %d", is.key, n, reads)
				}
			}
		})
	}
}
