// Package inventory reads the S3 Inventory of a bucket: a report of all its objects that S3
// writes into another bucket every day or every week.
//
// A report is a manifest, its checksum and data files, which are in no order. [Source.Newest]
// finds the newest complete one, and [Report.Objects] yields its objects in the order of their
// keys. Nothing of it is trusted: all sizes are bounded, all checksums are compared, and a report
// that is wrong anywhere fails before it has yielded an object.
//
// A report is hours or days old. An object of it may be gone, and S3 does not promise that it has
// those that were written shortly before it.
package inventory

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farol-preservation/farol/storage"
)

const (
	// MostAge is how old a report may be: S3 writes the weekly ones on Sundays, within a day or two.
	MostAge = 8 * 24 * time.Hour

	mostManifest = 16 << 20 // bytes; a file has some 160
	mostFiles    = 100_000
	mostListed   = 100_000 // objects in the folders of the dates: two for each report
	mostColumns  = 100     // S3 knows about 25
)

// A Source is where the reports of a bucket are.
type Source struct {
	Bucket  *storage.Bucket // to which S3 writes them
	Folder  string          // of the configuration, with a slash at the end; it has those of the dates
	Setting string          // names both to people
}

// A Report is an inventory of one date.
type Report struct {
	Manifest string    // its key
	Taken    time.Time // when S3 began to read the bucket

	source  Source
	about   string // the bucket
	columns columns
	files   []file
}

// A file is a part of the objects of a report.
type file struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	MD5  string `json:"MD5checksum"`
}

type manifest struct {
	SourceBucket      string `json:"sourceBucket"`
	DestinationBucket string `json:"destinationBucket"`
	FileFormat        string `json:"fileFormat"`
	FileSchema        string `json:"fileSchema"`
	Files             []file `json:"files"`
}

// Newest reads the manifest of the newest report about a bucket that is complete. One that is
// damaged or too old is an error, and no earlier one takes its place.
func (s Source) Newest(ctx context.Context, about string) (*Report, error) {
	r := &Report{source: s, about: about}
	if err := r.open(ctx); err != nil {
		return nil, r.wrap(err)
	}
	return r, nil
}

// wrap says which report an error is about, and which setting leads to it.
func (r *Report) wrap(err error) error {
	return fmt.Errorf("read the S3 Inventory of %s (%s is %s/%s): %w", r.about, r.source.Setting, r.source.Bucket.Name(), strings.TrimSuffix(r.source.Folder, "/"), err)
}

func (r *Report) open(ctx context.Context) error {
	folder, err := r.find(ctx)
	if err != nil {
		return err
	}
	r.Manifest = folder + "manifest.json"
	text, err := r.source.read(ctx, r.Manifest, mostManifest)
	if err != nil {
		return err
	}
	want, err := r.source.read(ctx, folder+"manifest.checksum", 1<<10)
	if err != nil {
		return err
	}
	if sum := md5.Sum(text); !strings.EqualFold(strings.TrimSpace(string(want)), hex.EncodeToString(sum[:])) {
		return fmt.Errorf("the MD5 of %s is not that in manifest.checksum: remove that folder to have the one before it read", r.Manifest)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s: %w", r.Manifest, err)
	}
	if err := r.accept(m); err != nil {
		return fmt.Errorf("%s: %w", r.Manifest, err)
	}
	return nil
}

// find returns the folder of the newest complete report. The keys come in order: those of the
// dates in front of those of the data, and of each date the checksum in front of the manifest.
func (r *Report) find(ctx context.Context) (folder string, err error) {
	checksum, listed := "", 0
	for o, err := range r.source.Bucket.List(ctx, r.source.Folder, "") {
		if err != nil {
			return "", err
		}
		date, name, _ := strings.Cut(strings.TrimPrefix(o.Key, r.source.Folder), "/")
		if date > ":" { // no digit: the data, which may be thousands of files
			break
		}
		if listed++; listed > mostListed {
			return "", fmt.Errorf("its folder has more than %d manifests: expire old ones by a lifecycle rule", mostListed/2)
		}
		taken, err := time.Parse("2006-01-02T15-04Z", date)
		switch {
		case err != nil:
		case name == "manifest.checksum":
			checksum = date
		case name == "manifest.json" && checksum == date:
			folder, r.Taken = r.source.Folder+date+"/", taken
		}
	}
	switch age := time.Since(r.Taken); {
	case folder == "":
		return "", fmt.Errorf("it has no complete report: set %s to the folder that has those of the dates, BUCKET/PREFIX/%s/CONFIGURATION", r.source.Setting, r.about)
	case age > MostAge:
		return "", fmt.Errorf("the newest report is of %s, and one of more than %d days is not used: check that S3 still writes it, or unset %s to list the bucket",
			r.Taken.Format(time.DateOnly), int(MostAge/(24*time.Hour)), r.source.Setting)
	case age < -time.Hour:
		return "", fmt.Errorf("the newest report is of %s, in the future: check the clock of this host", r.Taken.Format(time.RFC3339))
	}
	return folder, nil
}

// read reads an object of up to so many bytes.
func (s Source) read(ctx context.Context, key string, most int64) ([]byte, error) {
	body, err := s.Bucket.Get(ctx, key, storage.Range{Length: -1})
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes, and is no file of S3's", key, most)
	}
	return text, err
}

// accept takes what a manifest says, if it is about the bucket and can be read.
func (r *Report) accept(m manifest) (err error) {
	destination := m.DestinationBucket[strings.LastIndex(m.DestinationBucket, ":")+1:] // an ARN
	switch {
	case m.SourceBucket != r.about:
		return fmt.Errorf("it is about the bucket %q: set %s to the reports about %s", m.SourceBucket, r.source.Setting, r.about)
	case destination != "" && destination != r.source.Bucket.Name():
		return fmt.Errorf("it was written for the bucket %q: set %s to that bucket", destination, r.source.Setting)
	case m.FileFormat != "CSV":
		return fmt.Errorf("its files are %q: set the output format of the inventory configuration to CSV", m.FileFormat)
	case len(m.Files) > mostFiles:
		return fmt.Errorf("it has %d files, more than %d", len(m.Files), mostFiles)
	}
	for _, f := range m.Files {
		if sum, err := hex.DecodeString(f.MD5); f.Key == "" || f.Size < 0 || err != nil || len(sum) != md5.Size {
			return fmt.Errorf("file %q has no valid size or MD5checksum", f.Key)
		}
	}
	r.files = m.Files
	r.columns, err = columnsOf(m.FileSchema)
	return err
}

// columns are the places of some columns in a row; -1 if there is none.
type columns struct{ all, bucket, key, size, version, latest, marker int }

func columnsOf(schema string) (columns, error) {
	names := strings.SplitN(schema, ",", mostColumns+1)
	at := map[string]int{}
	for i, name := range names {
		at[strings.TrimSpace(name)] = i
	}
	place := func(name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return -1
	}
	c := columns{
		all: len(names), bucket: place("Bucket"), key: place("Key"), size: place("Size"),
		version: place("VersionId"), latest: place("IsLatest"), marker: place("IsDeleteMarker"),
	}
	switch {
	case len(names) > mostColumns || len(at) < len(names):
		return c, errors.New("its fileSchema has too many columns, or one twice")
	case c.bucket < 0 || c.key < 0:
		return c, fmt.Errorf("its fileSchema %q lacks Bucket or Key", schema)
	case c.version >= 0 && c.latest < 0:
		return c, fmt.Errorf("its fileSchema %q has versions without IsLatest: set the inventory configuration to current versions only", schema)
	}
	return c, nil
}
