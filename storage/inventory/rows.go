package inventory

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farol-preservation/farol/storage"
)

const (
	mostRow   = 16 << 10 // bytes; a key has up to 1,024, which are three each when encoded
	mostKey   = 1024     // bytes, by S3's rules
	mostRatio = 300      // by which a file may grow; rows of S3's grow about tenfold
)

// Objects yields the current objects, by the bytes of their keys: key and size, which is -1 if the
// report does not have it. They are sorted on disk, in TMPDIR, by some 50 bytes for each. The first
// error ends it, and comes before any object if it is of the report.
func (r *Report) Objects(ctx context.Context) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		s := &sorter{limit: runBytes}
		defer s.close()
		for _, f := range r.files {
			if err := r.load(ctx, f, s.add); err != nil {
				yield(storage.Object{}, r.wrap(fmt.Errorf("file %s: %w", f.Key, err)))
				return
			}
		}
		for o, err := range s.sorted() {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// load reads a file as S3 keeps it.
func (r *Report) load(ctx context.Context, f file, add func(string, int64) error) error {
	body := &resuming{open: func(offset int64) (io.ReadCloser, error) {
		return r.source.Bucket.Get(ctx, f.Key, storage.Range{Offset: offset, Length: f.Size - offset})
	}, size: f.Size}
	defer body.close()
	return r.decode(body, f, add)
}

// decode reads the rows of a file, and whether its bytes are those of the manifest.
func (r *Report) decode(body io.Reader, f file, add func(string, int64) error) error {
	sum := md5.New()
	unzipped, err := gzip.NewReader(bufio.NewReaderSize(io.TeeReader(body, sum), 256<<10))
	if err != nil {
		return err
	}
	in := &bounded{from: unzipped, all: mostRatio*f.Size + 1<<20}
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.ReuseRecord = r.columns.all, true
	for {
		in.row = mostRow
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := r.take(row, add); err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, f.MD5) {
		return fmt.Errorf("its MD5 is %s, and not %s as the manifest says", got, f.MD5)
	}
	return nil
}

// take hands on the object of a row, if it is the current one of its key.
func (r *Report) take(row []string, add func(string, int64) error) error {
	c := r.columns
	if row[c.bucket] != r.about {
		return fmt.Errorf("it is about the bucket %q", row[c.bucket])
	}
	latest, err := flag(row, c.latest, true)
	if err != nil {
		return err
	}
	marker, err := flag(row, c.marker, false)
	if err != nil || marker || !latest {
		return err
	}
	key, err := url.QueryUnescape(row[c.key])
	if err != nil {
		return err
	}
	if key == "" || len(key) > mostKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return fmt.Errorf("%q is no key", key)
	}
	size := int64(-1)
	if c.size >= 0 && row[c.size] != "" {
		if size, err = strconv.ParseInt(row[c.size], 10, 64); err != nil || size < 0 {
			return fmt.Errorf("%q is no size", row[c.size])
		}
	}
	return add(key, size)
}

// flag is a column that is true or false, or what it is by default where there is no such column.
func flag(row []string, at int, byDefault bool) (bool, error) {
	if at < 0 {
		return byDefault, nil
	}
	return strconv.ParseBool(row[at])
}

// bounded reads up to so many bytes for a row, and for all of them.
type bounded struct {
	from     io.Reader
	row, all int64
}

func (b *bounded) Read(p []byte) (int, error) {
	switch {
	case b.row <= 0:
		return 0, fmt.Errorf("a row has more than %d bytes", mostRow)
	case b.all <= 0:
		return 0, fmt.Errorf("it grows more than %d times as it is unzipped", mostRatio)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.row, b.all)])
	b.row, b.all = b.row-int64(n), b.all-int64(n)
	return n, err
}

// resuming reads an object, and reads on after a broken connection. A file may have gigabytes.
type resuming struct {
	open         func(offset int64) (io.ReadCloser, error)
	size, offset int64
	body         io.ReadCloser // nil: there is no connection
	vain         int           // connections in a row that brought nothing
}

func (r *resuming) Read(p []byte) (n int, err error) {
	const inVain = 3
	for r.offset < r.size {
		if r.body == nil {
			if r.body, err = r.open(r.offset); err != nil {
				return 0, err
			}
		}
		n, err = r.body.Read(p)
		if r.offset += int64(n); n > 0 {
			r.vain = 0
			return n, nil // an error comes again
		}
		if err != nil {
			r.close()
			if r.vain++; r.vain == inVain {
				return 0, err
			}
		}
	}
	return 0, io.EOF
}

func (r *resuming) close() {
	if r.body != nil {
		_ = r.body.Close() // what was read of it is compared with its checksum
		r.body = nil
	}
}
