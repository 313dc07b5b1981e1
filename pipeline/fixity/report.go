package fixity

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// Report puts on record what a completion report of S3 Batch Operations says of
// copies: the digests that S3 computed of them again ("Compute checksum"), which it
// does in archive classes too. A report may have any number of rows.
type Report struct {
	Registry *registry.Registry
	Target   string          // that it is about
	Bucket   *storage.Bucket // of that target, which is asked about copies that are said to be missing
	At       time.Time       // when S3 computed the digests
}

// Sum is what the rows of a report came to.
type Sum struct {
	Rows         int64 `json:"rows"`
	Matched      int64 `json:"matched"`
	Altered      int64 `json:"altered"`
	Missing      int64 `json:"missing"`
	Known        int64 `json:"known"`        // that were on record already
	Overtaken    int64 `json:"overtaken"`    // about bytes that were replaced or deleted since
	Incomparable int64 `json:"incomparable"` // checksums of a kind of which none is on record
	Failed       int64 `json:"failed"`       // S3 could not compute it
	Unknown      int64 `json:"unknown"`      // keys that no active copy has
	Unreadable   int64 `json:"unreadable"`   // rows
}

// A Problem is a row that people should know about.
type Problem struct {
	Line    int64  `json:"line"`
	Key     string `json:"key"`
	File    string `json:"file"` // identifier; "" if it is not known
	Problem string `json:"problem"`
}

const (
	reportBatch   = 500     // rows in one transaction
	mostReportRow = 1 << 20 // bytes
)

// reportRow is a row that can be compared with the record.
type reportRow struct {
	line      int64
	key       string
	algorithm string
	digest    string // in lower-case hex; "": there is no such object
}

// reporting is one call of Import.
type reporting struct {
	*Report

	sum     Sum
	problem func(Problem)
	rows    []reportRow
	keys    map[string]bool // of these rows
}

// Import reads a report to its end and puts on record what it says. problem is called
// for each row that is bad in any way; the others are done.
func (f *Report) Import(ctx context.Context, in io.Reader, problem func(Problem)) (Sum, error) {
	r := &reporting{Report: f, problem: problem, keys: map[string]bool{}}
	buffered := bufio.NewReaderSize(in, mostReportRow)
	for line := int64(1); ; line++ {
		text, err := buffered.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = buffered.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return r.sum, fmt.Errorf("read line %d: %w", line, err)
		}
		if tooLong {
			r.bad(line, "", "the row is too long")
		} else if failed := r.add(ctx, line, string(text)); failed != nil {
			return r.sum, failed
		}
		if err != nil {
			return r.sum, r.flush(ctx)
		}
	}
}

func (r *reporting) bad(line int64, key, problem string) {
	r.sum.Rows++
	r.sum.Unreadable++
	r.problem(Problem{Line: line, Key: key, Problem: problem})
}

// add takes up a row.
func (r *reporting) add(ctx context.Context, line int64, text string) error {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	if text == "" {
		return nil
	}
	columns := csv.NewReader(strings.NewReader(text))
	columns.FieldsPerRecord = -1
	row, err := columns.Read()
	const bucket, key, status, code, http, message, count = 0, 1, 3, 4, 5, 6, 7
	switch {
	case err != nil || len(row) != count:
		r.bad(line, "", fmt.Sprintf("it is not a row of a completion report, which has %d columns", count))
		return nil //nolint:nilerr // it is reported, and the other rows are done
	case line == 1 && strings.EqualFold(row[bucket], "Bucket"): // a header
		return nil
	}
	name, err := url.QueryUnescape(row[key])
	switch {
	case err != nil:
		r.bad(line, row[key], "its key is not encoded as in a URL")
	case row[bucket] != r.Bucket.Name():
		r.bad(line, name, fmt.Sprintf("it is about bucket %q, and %s is %q", row[bucket], r.Target, r.Bucket.Name()))
	case strings.EqualFold(row[status], "succeeded"):
		return r.succeeded(ctx, line, name, row[message])
	case row[http] == "404" || strings.Contains(row[code], "NoSuchKey"):
		r.sum.Rows++
		return r.take(ctx, reportRow{line: line, key: name, algorithm: "sha256"})
	case strings.EqualFold(row[status], "failed"):
		r.sum.Rows++
		r.sum.Failed++
		r.problem(Problem{Line: line, Key: name, Problem: strings.TrimSpace(fmt.Sprintf("S3 could not compute the checksum: %s %s", row[http], row[code]))})
	default:
		r.bad(line, name, fmt.Sprintf("its task status is %q", row[status]))
	}
	return nil
}

// computed is what S3 says of an object in JSON.
type computed struct {
	Base64    string `json:"checksum_base64"`
	Hex       string `json:"checksum_hex"`
	Algorithm string `json:"checksumAlgorithm"`
	Type      string `json:"checksumType"`
}

// succeeded takes up the row of an object whose checksum was computed.
func (r *reporting) succeeded(ctx context.Context, line int64, key, message string) error {
	var c computed
	if err := json.Unmarshal([]byte(message), &c); err != nil || c.Algorithm == "" {
		r.bad(line, key, "its result has no checksum")
		return nil //nolint:nilerr // likewise
	}
	algorithm := strings.ToLower(strings.ReplaceAll(c.Algorithm, "-", ""))
	length := map[string]int{"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}[algorithm]
	if length == 0 || c.Type != "" && !strings.EqualFold(c.Type, "FULL_OBJECT") {
		r.sum.Rows++
		r.sum.Incomparable++
		return nil
	}
	digest, err := hex.DecodeString(c.Hex)
	if err != nil || c.Hex == "" {
		digest, err = base64.StdEncoding.DecodeString(c.Base64)
	}
	if err != nil || len(digest) != length {
		r.bad(line, key, "its checksum cannot be read")
		return nil //nolint:nilerr // likewise
	}
	r.sum.Rows++
	return r.take(ctx, reportRow{line, key, algorithm, hex.EncodeToString(digest)})
}

// take puts a row into the batch. A copy is in a batch once.
func (r *reporting) take(ctx context.Context, row reportRow) error {
	if len(r.rows) == reportBatch || r.keys[row.key] {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.rows, r.keys[row.key] = append(r.rows, row), true
	return nil
}

// flush puts a batch on record.
func (r *reporting) flush(ctx context.Context) error {
	rows := r.rows
	r.rows = nil
	clear(r.keys)
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = row.key
	}
	if len(rows) == 0 {
		return nil
	}
	list, err := fixity.In(r.Registry).CopiesByKey(ctx, r.Target, keys)
	if err != nil {
		return err
	}
	copies := map[string]fixity.RecordedCopy{}
	for _, c := range list {
		copies[c.Key] = c
	}
	var known []reportRow
	var results []fixity.Result
	for _, row := range rows {
		c, ok := copies[row.key]
		switch {
		case !ok:
			r.sum.Unknown++
			r.problem(Problem{Line: row.line, Key: row.key, Problem: "no active copy on record has this key"})
			continue
		case c.Digests[row.algorithm] == "":
			r.sum.Incomparable++
			continue
		case row.digest == "" && !r.missing(ctx, row, c):
			continue
		}
		known = append(known, row)
		results = append(results, fixity.Result{
			Hold: fixity.Hold{ID: c.ID}, Key: row.key, Algorithm: row.algorithm, Expected: c.Digests[row.algorithm], Found: row.digest,
			At: r.At, Object: "S3 checksum report", Agent: "https://docs.aws.amazon.com/AmazonS3/latest/userguide/batch-ops.html",
		})
	}
	return r.record(ctx, known, results, copies)
}

// missing looks for itself whether a copy is missing.
func (r *reporting) missing(ctx context.Context, row reportRow, c fixity.RecordedCopy) bool {
	err := r.Bucket.Check(ctx)
	if err == nil {
		_, err = r.Bucket.Head(ctx, row.key)
	}
	if errors.Is(err, storage.ErrNotFound) {
		return true
	}
	r.sum.Failed++
	problem := "S3 reported it missing, but it exists"
	if err != nil {
		problem = fmt.Sprintf("S3 reported it missing; whether it exists is unknown: %v", err)
	}
	r.problem(Problem{Line: row.line, Key: row.key, File: c.File, Problem: problem})
	return false
}

// record puts results on record, and counts what became of them. Those of files that
// someone is at get another try.
func (r *reporting) record(ctx context.Context, rows []reportRow, results []fixity.Result, copies map[string]fixity.RecordedCopy) error {
	for len(results) > 0 {
		ends, err := fixity.In(r.Registry).Record(ctx, results...)
		if err != nil {
			return err
		}
		var busyRows []reportRow
		var busy []fixity.Result
		for i, end := range ends {
			if end == fixity.Busy {
				busyRows, busy = append(busyRows, rows[i]), append(busy, results[i])
				continue
			}
			r.count(rows[i], results[i], end, copies[rows[i].key])
		}
		rows, results = busyRows, busy
		if len(busy) > 0 && !retry.Pause(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *reporting) count(row reportRow, f fixity.Result, end fixity.End, c fixity.RecordedCopy) {
	switch {
	case end == fixity.Dropped:
		r.sum.Overtaken++
	case end == fixity.FixityKnown:
		r.sum.Known++
	case f.Found == f.Expected:
		r.sum.Matched++
	case f.Found == "":
		r.sum.Missing++
		r.problem(Problem{Line: row.line, Key: row.key, File: c.File, Problem: "the copy is missing"})
	default:
		r.sum.Altered++
		r.problem(Problem{
			Line: row.line, Key: row.key, File: c.File,
			Problem: fmt.Sprintf("checksum mismatch: expected %s %s, got %s", f.Algorithm, f.Expected, f.Found),
		})
	}
}
