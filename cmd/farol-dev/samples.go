package main

import (
	"fmt"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry"
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
		{
			institution: lighthouse, key: "wrong-digest.tar", what: "a file was damaged on the way", status: "Failed", note: "data/page-001.txt",
			bag: bagtest.Spec{Name: "wrong-digest", Files: pages("data/page", 3), Corrupt: []string{"data/page-001.txt"}},
		},
		{
			institution: lighthouse, key: "missing-file.tar", what: "a file was forgotten", status: "Failed", note: "data/page-002.txt",
			bag: bagtest.Spec{Name: "missing-file", Files: pages("data/page", 3), Leave: []string{"data/page-002.txt"}},
		},
		{
			institution: harbor, key: "no-title.tar", what: "a required tag has no value", status: "Failed", note: "Title",
			bag: bagtest.Spec{Name: "no-title", Tags: []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: ""}}},
		},
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
