package main

import (
	"archive/tar"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farol-preservation/farol/chaos/oracle"
)

// mix says what bags an experiment deposits.
type mix struct {
	Bags  int
	Large int // of Bags: 24 MiB in one file
	Many  int // of Bags: many files
	Files int // of each of those; 0: 300
}

// invalid share of the bags: one in ten, in these ways in rotation.
func flaws() []string { return []string{"digest", "missing", "cut", "title", "unlisted"} }

const invalidEach = 10

// draft is a bag before it is a tar.
type draft struct {
	name, option, flaw string
	files              []content
}

type content struct {
	path string
	data []byte
}

// makeBags writes the tars of a mix to dir and has the oracle read them. The same
// seed makes the same bags.
func makeBags(dir string, seed uint64, m mix, institutions []institution) ([]oracle.Bag, error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the bags' directory: %w", err)
	}
	var bags []oracle.Bag
	for i := range m.Bags {
		d := draft{name: fmt.Sprintf("bag-%04d", i), option: []string{"Standard", "Standard", "Standard", "Wasabi-OR", "Standard", "Wasabi-VA"}[i%6]}
		switch {
		case i < m.Large:
			d.files = []content{noise(rng, "data/film.mov", 24<<20)}
		case i < m.Large+m.Many:
			for n := range cmp.Or(m.Files, 300) {
				d.files = append(d.files, noise(rng, fmt.Sprintf("data/pages/%02d/page-%05d.txt", n%7, n), 200+rng.IntN(2000)))
			}
		default:
			for n := range 2 + rng.IntN(3) {
				d.files = append(d.files, noise(rng, fmt.Sprintf("data/file-%d.bin", n), 100+rng.IntN(20_000)))
			}
			if i%invalidEach == invalidEach/2 {
				d.flaw = flaws()[i/invalidEach%len(flaws())]
			}
		}
		if i%3 == 0 {
			d.files = append(d.files, content{"custom/notes.txt", []byte("Kept by: hand\n")})
		}
		inst := institutions[i%len(institutions)]
		path := filepath.Join(dir, inst.Identifier+"-"+d.name+".tar")
		if err := d.write(path, rng); err != nil {
			return nil, fmt.Errorf("make bag %s: %w", d.name, err)
		}
		bag, err := oracle.ReadBag(path, inst.Identifier, inst.Receiving, d.name+".tar")
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the bag
		}
		if (bag.Wrong != "") != (d.flaw != "") {
			return nil, fmt.Errorf("bag %s was made with the flaw %q, but the oracle finds %q", d.name, d.flaw, bag.Wrong)
		}
		bags = append(bags, bag)
	}
	return bags, nil
}

func noise(rng *rand.Rand, path string, size int) content {
	data := make([]byte, size)
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rng.Uint32())
	}
	rand.NewChaCha8(seed).Read(data) //nolint:errcheck // it never fails
	return content{path, data}
}

// write writes the tar, with its flaw.
func (d draft) write(path string, rng *rand.Rand) error {
	title := "Bag " + d.name
	if d.flaw == "title" {
		title = ""
	}
	octets, count := 0, 0
	for _, f := range d.files {
		if strings.HasPrefix(f.path, "data/") {
			octets, count = octets+len(f.data), count+1
		}
	}
	tags := []content{
		{"bagit.txt", []byte("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")},
		{"bag-info.txt", fmt.Appendf(nil, "Source-Organization: make chaos\nBagging-Date: 2026-01-02\nPayload-Oxum: %d.%d\n", octets, count)},
		{"aptrust-info.txt", fmt.Appendf(nil, "Title: %s\nAccess: Institution\nStorage-Option: %s\n", title, d.option)},
	}
	all := append(tags, d.files...)
	var sums [2]strings.Builder // the profile asks for an MD5 manifest too
	var tagSums strings.Builder
	for _, f := range all {
		if strings.HasPrefix(f.path, "data/") {
			fmt.Fprintf(&sums[0], "%x  %s\n", md5.Sum(f.data), f.path)
			fmt.Fprintf(&sums[1], "%x  %s\n", sha256.Sum256(f.data), f.path)
		}
	}
	all = append(all, content{"manifest-md5.txt", []byte(sums[0].String())}, content{"manifest-sha256.txt", []byte(sums[1].String())})
	for _, f := range all {
		if !strings.HasPrefix(f.path, "data/") {
			fmt.Fprintf(&tagSums, "%x  %s\n", sha256.Sum256(f.data), f.path)
		}
	}
	all = append(all, content{"tagmanifest-sha256.txt", []byte(tagSums.String())})
	first := len(tags)
	switch d.flaw {
	case "digest":
		damaged := append([]byte(nil), all[first].data...)
		damaged[rng.IntN(len(damaged))] ^= 1
		all[first].data = damaged
	case "missing":
		all = append(all[:first:first], all[first+1:]...)
	case "unlisted":
		all = append(all, content{"data/unlisted.txt", []byte("on no manifest\n")})
	}
	return writeTar(path, d, all)
}

func writeTar(path string, d draft, files []content) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := tar.NewWriter(f)
	for _, c := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: d.name + "/" + c.path, Size: int64(len(c.data)), Mode: 0o644, ModTime: time.Unix(1_767_323_045, 0)}
		if err := w.WriteHeader(h); err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
		if _, err := w.Write(c.data); err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
	}
	if err := w.Close(); err != nil {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	if d.flaw == "cut" {
		end, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
		return f.Truncate(end / 2) //nolint:wrapcheck // the caller says what it is for
	}
	return nil
}
