package ingest

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
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
)

// motley is a bag with many kinds of content, of which some no manifest covers.
func (a *archive) motley(name string) []byte {
	return a.Bag(bagtest.Spec{
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
			if strings.HasSuffix(r.Request.URL.Path, ".tar") {
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
	b := must.Get(bag.Read(t.Context(), bytes.NewReader(tar), bag.ReadOptions{}))(t)
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
			w := a.Wired()
			w.Answers = answers
			a.Exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '10 milliseconds'`)
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
				id := a.Deposit(bagName+".tar", tar)
				tars[id], ids[id] = tar, at
				w.Next(pipelinetest.Spoilt{Object: "/" + bagName + ".tar", At: at, How: "flip", Times: 1})
			}
			a.Work()
			if n := w.Left(); n > 0 {
				t.Errorf("%d bytes were not flipped", n)
			}
			for id, tar := range tars {
				if item := a.Item(id); item.Status != "Success" {
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
	a.checkpointEvery(8 * mib)
	var files []bagtest.File
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, bagtest.File{Path: "data/" + name, Size: 10 * mib})
	}
	tar := a.Bag(bagtest.Spec{Name: "large", Files: files})
	id := a.Deposit("large.tar", tar)
	w := a.Wired()
	w.Next(pipelinetest.Spoilt{Object: "/large.tar", At: 5 * mib, How: "flip", Times: 1})
	w.Next(pipelinetest.Spoilt{Object: "/large.tar", At: 25 * mib, How: "cut", Times: 5}) // until the attempt gives up
	engine := a.Engine()
	a.One(engine, "Receive")
	if item := a.Item(id); item.Stage != "Receive" || item.Status != "Pending" || w.Left() > 1 {
		t.Fatalf("item = %+v, %d answers not spoilt", item, w.Left())
	}
	a.Exec(`UPDATE work_items SET run_at = now()`)
	a.One(engine, "Receive")
	a.One(engine, "Validate")
	if item := a.Item(id); item.Stage != "Reingest Check" {
		t.Errorf("item = %+v", item)
	}
	for _, said := range []string{"resuming from a checkpoint", "does not match what the bucket reports"} {
		if !strings.Contains(a.Log.String(), said) {
			t.Errorf("the log does not say %q", said)
		}
	}
}

// asItWas fails the test unless an item's files are on record with their right digests,
// and their copies have the right bytes.
func (a *archive) asItWas(id int64, b *bag.Bag) {
	a.T.Helper()
	object := a.Item(id).ObjectIdentifier
	files := 0
	for _, f := range b.Files {
		if !f.Preservable() {
			continue
		}
		files++
		file := object + "/" + f.Path
		for _, algorithm := range []bag.Algorithm{bag.MD5, bag.SHA1, bag.SHA256, bag.SHA512} {
			if got := pipelinetest.Value[string](a, `SELECT coalesce(min(c.digest), '') FROM checksums c JOIN generic_files g ON g.id = c.generic_file_id
				WHERE g.identifier = $1 AND c.algorithm = $2`, file, string(algorithm)); got != f.Digests.Hex(algorithm) {
				a.T.Errorf("%s of %s is %s on record, and should be %s", algorithm, file, got, f.Digests.Hex(algorithm))
			}
		}
		uuid := pipelinetest.Value[string](a, `SELECT coalesce(min(uuid::text), '') FROM generic_files WHERE identifier = $1`, file)
		sum := sha256.Sum256(a.Content(a.Deps.Targets["Standard-VA"], uuid)) // the other copy is archived
		if hex.EncodeToString(sum[:]) != f.Digests.Hex(bag.SHA256) {
			a.T.Errorf("%s has other bytes", file)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE identifier LIKE $1 || '/%'`, object); n != files {
		a.T.Errorf("%s has %d files on record, and should have %d", object, n, files)
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
			w := a.Wired()
			w.Answers = answers
			type broken struct {
				code, note string
				Stage      registry.Stage
				key        string
			}
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
				is := broken{"invalid-bag", interim.Findings(v.Errors, v.More), "Validate", key}
				if code := b.Cut(); code != "" {
					is.code, is.Stage = code, "Receive"
				}
				want[a.Deposit(key, slices.Clone(tar))] = is
			}
			a.Work()
			reads := map[string]int{"by its checksum": 1, "by two reads": 2}[name]
			for id, is := range want {
				item := a.Item(id)
				if item.Status != "Failed" || item.Stage != is.Stage || item.ErrorCode != is.code || item.Note != is.note {
					t.Errorf("item = %+v, want Failed, %s: %s", item, is.code, is.note)
				}
				if n := w.Count("GET", "/"+is.key); n != reads {
					t.Errorf("%s was read %d times, want %d", is.key, n, reads)
				}
			}
		})
	}
}
