package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// Flaws are the ways in which a [Draft] can be no valid bag.
func Flaws() []string { return []string{"digest", "missing", "cut", "title", "unlisted"} }

// A Draft is a bag before it is a tar.
type Draft struct {
	bagtest.Spec

	Flaw string // one of [Flaws]; "" for a valid bag
}

// Bag writes the tar to dir and has the oracle read it, which has to find the bag as valid
// as the draft says.
func (d Draft) Bag(dir string, in Institution) (oracle.Bag, error) {
	path := filepath.Join(dir, in.Identifier+"-"+d.Name+".tar")
	if err := d.write(path); err != nil {
		return oracle.Bag{}, fmt.Errorf("make bag %s: %w", d.Name, err)
	}
	bag, err := oracle.ReadBag(path, in.Identifier, in.Receiving, d.Name+".tar")
	if err != nil {
		return bag, err //nolint:wrapcheck // it names the bag
	}
	if (bag.Wrong != "") != (d.Flaw != "") {
		return bag, fmt.Errorf("bag %s was made with the flaw %q, but the oracle finds %q", d.Name, d.Flaw, bag.Wrong)
	}
	return bag, nil
}

// write writes the tar, with its flaw.
func (d Draft) write(path string) (err error) {
	d.Title = "Bag " + d.Name
	switch d.Flaw {
	case "digest":
		d.Corrupt = []string{d.Files[0].Path}
	case "missing":
		d.Leave = []string{d.Files[0].Path}
	case "title":
		d.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title"}}
	case "unlisted":
		d.Unlisted = []bagtest.File{{Path: "data/unlisted.txt", Content: "on no manifest\n"}}
	}
	f, err := os.Create(path)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := d.WriteTar(f); err != nil || d.Flaw != "cut" {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	return f.Truncate(end / 2) //nolint:wrapcheck // the caller says what it is for
}
