package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// ExportRequest says what to export: the records of an institution, or of an object. Without
// either, those of the caller's own institution.
type ExportRequest struct {
	Kind  string      `json:"kind"` // inventory, manifest, events, premis or evidence
	Scope ExportScope `json:"scope"`
}

// ExportScope is what an export is of.
type ExportScope struct {
	Institution string `json:"institution,omitempty"` // identifier
	Object      string `json:"object,omitempty"`      // identifier
}

// Export is an export, and where its content is.
type Export struct {
	ID          int64      `json:"id"`
	Kind        string     `json:"kind"`
	Institution string     `json:"institution_identifier"`
	Object      *string    `json:"object_identifier"` // nil: the whole institution
	RequestedBy string     `json:"requested_by"`
	CreatedAt   time.Time  `json:"created_at"`
	WorkItem    *int64     `json:"work_item_id"` // that writes it into the restoration bucket; nil: it is downloaded
	Bucket      *string    `json:"bucket"`
	Key         *string    `json:"key"`
	Records     *int64     `json:"records"` // nil until it was written, like the next ones
	Bytes       *int64     `json:"bytes"`
	SHA256      *string    `json:"sha256"`
	TakenAt     *time.Time `json:"taken_at"` // moment that it shows
	CompletedAt *time.Time `json:"completed_at"`
	Content     *string    `json:"content"` // path of the content; nil: it is in the restoration bucket, or will be
}

// MakeExport makes an export. Its content is downloaded, or written into the restoration
// bucket by a work item if it is large.
func (r Registry) MakeExport(ctx context.Context, q ExportRequest) (Export, error) {
	return post[Export](ctx, r, "exports", q)
}

// Export shows an export.
func (r Registry) Export(ctx context.Context, id int64) (Export, error) {
	return get[Export](ctx, r, about("exports", id, ""), nil)
}

// Exports lists exports, newest first: of an institution by its identifier, or "" for all
// that the caller may see.
func (r Registry) Exports(ctx context.Context, institution string) iter.Seq2[Export, error] {
	q := query{}
	q.text("institution", institution)
	return Pages[Export](ctx, r, "exports", url.Values(q), 0)
}

// errBroken says that a download has not come whole.
var errBroken = errors.New("the download broke off, or its content is not what the server sent; download it again")

// DownloadExport writes the content of an export to a writer, and returns its SHA-256 in
// hexadecimal, which it has compared with the server's. It has no time limit but that of ctx,
// and is not tried again: what was written of a download that fails has to be dropped.
func (r Registry) DownloadExport(ctx context.Context, id int64, to io.Writer) (digest string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.base+apiPath+about("exports", id, "/content"), nil)
	if err != nil {
		return "", fmt.Errorf("download export %d: %w", id, err)
	}
	if r.c.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.c.token)
	}
	response, err := r.c.http.Do(request)
	if err != nil {
		return "", fmt.Errorf("download export %d: %w", id, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, mostProblem))
		return "", fmt.Errorf("download export %d: %w", id, errors.Join(refusal(response, text), err))
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), response.Body); err != nil {
		return "", fmt.Errorf("download export %d: %w: %w", id, errBroken, err)
	}
	if want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"; response.Trailer.Get("Repr-Digest") != want {
		return "", fmt.Errorf("download export %d: %w", id, errBroken)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// mostProblem bounds what is read of a refusal, in bytes.
const mostProblem = 1 << 20
