package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errBroken says that a download has not come whole.
var errBroken = errors.New("the download broke off, or its content is not what the server sent; download it again")

// DownloadExport writes the content of an export to a writer, and returns its SHA-256 in
// hexadecimal, which it has compared with the server's. It has no time limit but that of ctx,
// and is not tried again: what was written of a download that fails has to be dropped.
func (r Registry) DownloadExport(ctx context.Context, id int64, to io.Writer) (digest string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.base+apiPath+fmt.Sprintf("exports/%d/content", id), nil)
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
