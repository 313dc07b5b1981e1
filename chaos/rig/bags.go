package rig

import (
	"archive/tar"
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

// Flaws are the ways in which a [Draft] can be no valid bag.
func Flaws() []string { return []string{"digest", "missing", "cut", "title", "unlisted"} }

// A Draft is a bag before it is a tar.
type Draft struct {
	Name, Option string
	Flaw         string // one of [Flaws]; "" for a valid bag
	Files        []Content
}

// A Content is a file of a [Draft]. Payload is below data/.
type Content struct {
	Path string
	Data []byte
}

// Noise is a file of random bytes. The same rng makes the same bytes.
func Noise(rng *rand.Rand, path string, size int) Content {
	data := make([]byte, size)
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rng.Uint32())
	}
	rand.NewChaCha8(seed).Read(data) //nolint:errcheck // it never fails
	return Content{path, data}
}

// Bag writes the tar to dir and has the oracle read it, which has to find the bag as valid
// as the draft says. Where the flaw is, rng chooses.
func (d Draft) Bag(dir string, in Institution, rng *rand.Rand) (oracle.Bag, error) {
	path := filepath.Join(dir, in.Identifier+"-"+d.Name+".tar")
	if err := d.write(path, rng); err != nil {
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
func (d Draft) write(path string, rng *rand.Rand) error {
	title := "Bag " + d.Name
	if d.Flaw == "title" {
		title = ""
	}
	octets, count := 0, 0
	for _, f := range d.Files {
		if strings.HasPrefix(f.Path, "data/") {
			octets, count = octets+len(f.Data), count+1
		}
	}
	tags := []Content{
		{"bagit.txt", []byte("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")},
		{"bag-info.txt", fmt.Appendf(nil, "Source-Organization: make chaos\nBagging-Date: 2026-01-02\nPayload-Oxum: %d.%d\n", octets, count)},
		{"aptrust-info.txt", fmt.Appendf(nil, "Title: %s\nAccess: Institution\nStorage-Option: %s\n", title, d.Option)},
	}
	all := append(tags, d.Files...)
	var sums [2]strings.Builder // the profile asks for an MD5 manifest too
	var tagSums strings.Builder
	for _, f := range all {
		if strings.HasPrefix(f.Path, "data/") {
			fmt.Fprintf(&sums[0], "%x  %s\n", md5.Sum(f.Data), encoded(f.Path))
			fmt.Fprintf(&sums[1], "%x  %s\n", sha256.Sum256(f.Data), encoded(f.Path))
		}
	}
	all = append(all, Content{"manifest-md5.txt", []byte(sums[0].String())}, Content{"manifest-sha256.txt", []byte(sums[1].String())})
	for _, f := range all {
		if !strings.HasPrefix(f.Path, "data/") {
			fmt.Fprintf(&tagSums, "%x  %s\n", sha256.Sum256(f.Data), encoded(f.Path))
		}
	}
	all = append(all, Content{"tagmanifest-sha256.txt", []byte(tagSums.String())})
	first := len(tags)
	switch d.Flaw {
	case "digest":
		damaged := append([]byte(nil), all[first].Data...)
		damaged[rng.IntN(len(damaged))] ^= 1
		all[first].Data = damaged
	case "missing":
		all = append(all[:first:first], all[first+1:]...)
	case "unlisted":
		all = append(all, Content{"data/unlisted.txt", []byte("on no manifest\n")})
	}
	return writeTar(path, d, all)
}

// encoded is a path as a manifest has it (RFC 8493, 2.1.3).
func encoded(path string) string { return strings.ReplaceAll(path, "%", "%25") }

func writeTar(path string, d Draft, files []Content) (err error) {
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
		h := &tar.Header{Typeflag: tar.TypeReg, Name: d.Name + "/" + c.Path, Size: int64(len(c.Data)), Mode: 0o644, ModTime: time.Unix(1_767_323_045, 0)}
		if err := w.WriteHeader(h); err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
		if _, err := w.Write(c.Data); err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
	}
	if err := w.Close(); err != nil {
		return err //nolint:wrapcheck // the caller says what it is for
	}
	if d.Flaw == "cut" {
		end, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err //nolint:wrapcheck // the caller says what it is for
		}
		return f.Truncate(end / 2) //nolint:wrapcheck // the caller says what it is for
	}
	return nil
}
