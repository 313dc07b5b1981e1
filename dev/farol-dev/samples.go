package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// A sample is a bag of the demonstration and how it must end.
type sample struct {
	institution string // identifier
	key         string
	what        string // shown to the person who watches
	bag         bagtest.Spec
	status      registry.Status
	note        string // part of the item's note
	files       int64  // on record of its object afterwards
	copies      int64
}

const (
	lighthouse = "lighthouse.edu"
	harbor     = "harbor.edu"
)

// samples are the bags of the first round: good ones in several storage
// options, and three that are wrong in different ways.
func samples() []sample {
	good := func(institution, name, option, what string, copies int64, files ...bagtest.File) sample {
		n := int64(len(files)) + 2 // bag-info.txt and aptrust-info.txt are kept too
		return sample{
			institution: institution, key: name + ".tar", what: what, status: "Success", note: "Ingest complete",
			bag: bagtest.Spec{Name: name, Title: what, StorageOption: option, Files: files}, files: n, copies: n * copies,
		}
	}
	wrong := func(institution, what, note string, bag bagtest.Spec) sample {
		return sample{institution: institution, key: bag.Name + ".tar", what: what, bag: bag, status: "Failed", note: note}
	}
	btr := good(harbor, "soundings-1931", "Wasabi-TX", "a BTR bag in Wasabi-TX", 1, random("data/soundings.dat", 1<<20, 7), text("data/readme.txt"))
	btr.bag.Profile = bagtest.BTR
	btr.files, btr.copies = 3, 3 // a BTR bag has no aptrust-info.txt
	return []sample{
		good(lighthouse, "photographs", "Standard", "photographs in two copies, one in Glacier", 2, photographs()...),
		good(lighthouse, "survey-film", "Standard", "one film of 96 MiB", 2, random("data/film.mov", 96<<20, 1)),
		good(lighthouse, "logbooks", "Wasabi-OR", "logbooks in Wasabi", 1, pages("data/logbook", 200)...),
		good(harbor, "charts", "Glacier-OH", "charts in Glacier", 1, pages("data/chart", 20)...),
		good(harbor, "ledgers", "Glacier-Deep-VA", "ledgers in Glacier Deep Archive", 1, pages("data/ledger", 5)...),
		good(harbor, "letters", "Standard", "letters, first version", 2, text("data/letter-1.txt"), text("data/letter-2.txt")),
		btr,
		wrong(lighthouse, "a file was damaged on the way", "data/page-001.txt",
			bagtest.Spec{Name: "wrong-digest", Files: pages("data/page", 3), Corrupt: []string{"data/page-001.txt"}}),
		wrong(lighthouse, "a file was forgotten", "data/page-002.txt",
			bagtest.Spec{Name: "missing-file", Files: pages("data/page", 3), Leave: []string{"data/page-002.txt"}}),
		wrong(harbor, "a required tag has no value", "Title",
			bagtest.Spec{Name: "no-title", Tags: []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: ""}}}),
	}
}

// secondRound is the re-ingest: a letter was corrected and another one added.
func secondRound() []sample {
	return []sample{{
		institution: harbor, key: "letters.tar", what: "letters, second version: one file changed, one new, one as before",
		bag: bagtest.Spec{
			Name: "letters", Title: "letters, second version", StorageOption: "Standard",
			Files: []bagtest.File{
				text("data/letter-1.txt"),
				{Path: "data/letter-2.txt", Content: "Corrected.\n"},
				text("data/letter-3.txt"),
			},
		},
		status: "Success", note: "Ingest complete", files: 5, copies: 10,
	}}
}

// firstInstitution is there from the first start of farol dev.
const firstInstitution = "test.edu"

// betweenFirst is so long that a person can follow one bag after the other.
const betweenFirst = 4 * time.Second

// firstBags are what a new farol dev begins with: a dozen bags; one fails. Those of
// many files are seen in each stage, since a file takes longer than a megabyte.
func firstBags() (list []sample) {
	for i, files := range []int{4000, 800, 8000, 2000} {
		name := fmt.Sprintf("diary-%d", i+1)
		list = append(list, sample{institution: firstInstitution, key: name + ".tar", bag: bagtest.Spec{
			Name: name, Title: fmt.Sprintf("a diary of %d pages", files), Files: pages("data/page", files),
		}})
	}
	for _, s := range samples() {
		if s.status == "Success" || s.key == "wrong-digest.tar" {
			s.institution = firstInstitution
			list = append(list, s)
		}
	}
	rand.New(rand.NewPCG(7, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) // always the same
	return list
}

// upload deposits a bag as a depositor would, and returns its size.
func (l *local) upload(ctx context.Context, s sample) (size int64, err error) {
	tar, err := os.CreateTemp(l.dir, "sample-*.tar")
	if err != nil {
		return 0, fmt.Errorf("make a sample bag: %w", err)
	}
	defer func() {
		if err = errors.Join(err, tar.Close(), os.Remove(tar.Name())); err != nil {
			err = fmt.Errorf("deposit %s: %w", s.key, err)
		}
	}()
	if err := s.bag.WriteTar(tar); err != nil {
		return 0, err
	}
	if size, err = tar.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	if _, err := tar.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	receiving, err := l.bucket("aptrust.receiving." + s.institution)
	if err != nil {
		return 0, err
	}
	_, err = receiving.Put(ctx, s.key, tar, storage.Upload{Size: size})
	return size, err
}

func text(path string) bagtest.File {
	return bagtest.File{Path: path, Content: "This is " + path + ", kept for as long as there are lighthouses.\n"}
}

func random(path string, size int64, seed uint64) bagtest.File {
	return bagtest.File{Path: path, Size: size, Seed: seed}
}

func pages(prefix string, n int) []bagtest.File {
	var files []bagtest.File
	for i := range n {
		files = append(files, text(fmt.Sprintf("%s-%03d.txt", prefix, i+1)))
	}
	return files
}

// photographs begin with the bytes by which a format is identified.
func photographs() []bagtest.File {
	const (
		png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82"
		gif = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x01D\x00;"
	)
	files := []bagtest.File{
		{Path: "data/keeper.png", Content: png},
		{Path: "data/lantern.gif", Content: gif},
		{Path: "data/catalogue.xml", Content: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<catalogue/>\n"},
	}
	for i := range 9 {
		files = append(files, random(fmt.Sprintf("data/negatives/negative-%02d.dat", i+1), 512<<10, uint64(i)))
	}
	return files
}
