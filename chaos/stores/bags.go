package stores

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// A deposit is a bag whose tar is made once for all stores.
type deposit struct {
	bag     oracle.Bag
	dir     string // where its tar is
	inParts bool   // the depositor uploads it in parts
	again   bool   // it is uploaded after all others, under the name of one of them
}

const mebibyte = 1 << 20

// options are the storage options in the order in which bags ask for them. Half of all are
// Standard, which means two copies.
func options() (list []string) {
	for _, t := range rig.TargetNames()[2:] {
		list = append(list, "Standard", t)
	}
	return list
}

// names are names of bags and files that stores have stumbled over.
func names() []string {
	return []string{
		"Letters of 1912", "Übergabe für Jürgen", "日本語の記録", "ελληνικά", "a+b=c & d", "50% off", "it's", "emoji 😀", "(draft) [2]",
		"comma, semicolon; colon:", "tilde~", "two  spaces", "..dots..", "#hash?", "e\u0301 decomposed", "!$'()*,;=@", "-minus", "%41 %2F",
	}
}

// drafts are the bags of a life: 42 with troublesome names or paths, some that are plain, 10 that are
// invalid, and those that are large, empty, or many.
func drafts(rng *rand.Rand) (list []rig.Draft) {
	standard := func(name string, files ...bagtest.File) {
		list = append(list, rig.Draft{Spec: bagtest.Spec{Name: name, Files: files}})
	}
	add := func(name, flaw string, files ...bagtest.File) {
		option := options()[len(list)%len(options())]
		list = append(list, rig.Draft{Spec: bagtest.Spec{Name: name, StorageOption: option, Files: files}, Flaw: flaw})
	}
	some := func(name string) bagtest.File { return noise(rng, "data/"+name, 100+rng.IntN(20_000)) }
	// Escaped, they take 12 bytes for each level. The metadata of an object holds 2 KiB, in some stores 256 bytes.
	for _, n := range []int{9, 30, 60, 130} {
		add(fmt.Sprintf("path-of-%d", n), "", some(strings.Repeat("語/", n)+"終.bin"), some("short.bin"))
	}
	add("path-ascii", "", some(strings.Repeat("a-very-long-directory-name/", 36)+"end.bin"))
	add(strings.Repeat("長い名前", 19), "", some("file.bin"))
	for _, name := range names() {
		add(name, "", some("file.bin"))
		add("files-"+fmt.Sprint(len(list)), "", some(name+".bin"), some("in "+name+"/"+name))
	}
	for i := range 10 {
		add(fmt.Sprintf("invalid-%d", i), rig.Flaws()[i%len(rig.Flaws())], some("one.bin"), some("two.bin"))
	}
	for i := range 8 {
		add(fmt.Sprintf("plain-%d", i), "", some("one.bin"), some("two.bin"), bagtest.File{Path: "custom/notes.txt", Content: "Kept by: hand\n"})
	}
	add("empty-file", "", bagtest.File{Path: "data/empty"})
	add("empty-files", "", bagtest.File{Path: "data/empty.txt"}, bagtest.File{Path: "data/dir/empty.bin"}, some("full.bin"))
	for i := range 2 {
		var pages []bagtest.File
		for n := range 150 {
			pages = append(pages, noise(rng, fmt.Sprintf("data/pages/%02d/page-%05d.txt", n%7, n), 200+rng.IntN(2000)))
		}
		standard(fmt.Sprintf("many-%d", i), pages...)
	}
	for i, sizes := range [][]int{{6 * mebibyte}, {6*mebibyte + 1, 5 * mebibyte, 10}, {5*mebibyte + 1}} {
		var films []bagtest.File
		for n, size := range sizes {
			films = append(films, noise(rng, fmt.Sprintf("data/film %d.mov", n), size))
		}
		standard(fmt.Sprintf("large-%d", i), films...)
	}
	standard("in-parts", noise(rng, "data/film.mov", 12*mebibyte), some("small.bin"))
	standard("huge", noise(rng, "data/reel-1.mov", 150*mebibyte), noise(rng, "data/reel-2.mov", 150*mebibyte))
	return list
}

// noise is a file of random bytes. The same rng makes the same bytes.
func noise(rng *rand.Rand, path string, size int) bagtest.File {
	return bagtest.File{Path: path, Size: int64(size), Seed: rng.Uint64()}
}

// makeBags writes the tars of all bags to dir. The same seed makes the same bags.
func makeBags(dir string, seed uint64) (list []deposit, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "again"), 0o700); err != nil {
		return nil, fmt.Errorf("make the bags' directory: %w", err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	institutions := []rig.Institution{{Identifier: "lighthouse.edu"}, {Identifier: "harbor.edu"}}
	var again rig.Draft
	var whose rig.Institution
	for i, d := range drafts(rng) {
		bag, err := d.Bag(dir, institutions[i%2])
		if err != nil {
			return nil, err
		}
		list = append(list, deposit{bag: bag, dir: dir, inParts: d.Name == "in-parts"})
		if d.Name == "plain-0" {
			again, whose = d, institutions[i%2]
		}
	}
	// The second upload of a bag has a file that is changed, and one that is new.
	again.Files[0], again.Files = noise(rng, again.Files[0].Path, 5000), append(again.Files, noise(rng, "data/three.bin", 5000))
	dir = filepath.Join(dir, "again")
	bag, err := again.Bag(dir, whose)
	return append(list, deposit{bag: bag, dir: dir, again: true}), err
}
