package storage

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	smithy "github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
)

// mostWords bounds an answer that is not an object: an error, or the result of a copy, with
// the spaces that S3 sends in front while it works.
const mostWords = mebibyte

// accept returns nil for a success. Unless it is that of a GET, the whole answer has been
// read then, and the connection is free. Errors are of the kinds that the SDK gives.
func (r *request) accept(response *http.Response) error {
	success := response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices
	if success && r.method == http.MethodGet {
		err := examine(r.operation, response)
		if err != nil {
			_ = response.Body.Close() // nothing of it is used
		}
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, mostWords))
	_ = response.Body.Close() // what counts has been read
	if err != nil {
		return &smithy.DeserializationError{Err: fmt.Errorf("read the answer: %w", err)}
	}
	name := rootOf(text)
	if success && strings.EqualFold(name, "Error") {
		// S3 said that it would do it, and found out in the middle that it cannot.
		response.StatusCode, success = http.StatusInternalServerError, false
	}
	if !success {
		return refusal(response.StatusCode, text)
	}
	want := root(r.operation)
	response.Body = io.NopCloser(bytes.NewReader(text))
	if want == "" {
		return examine(r.operation, response)
	}
	if name != want {
		return &strangeAnswer{fmt.Sprintf("the answer is %q, and not %s", name, want)}
	}
	return nil
}

// rootOf is the name of the first element, or "".
func rootOf(text []byte) string {
	d := xml.NewDecoder(bytes.NewReader(text))
	for len(text) > 0 {
		token, err := d.RawToken()
		if err != nil {
			break
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local
		}
	}
	return ""
}

// refusal is an error in S3's words or, without any, named by its status.
func refusal(status int, text []byte) error {
	var said struct{ Code, Message string }
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&said); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the error is not XML: %w", err)
	}
	if said.Code == "" && said.Message == "" {
		said.Message = http.StatusText(status)
		said.Code = strings.ReplaceAll(said.Message, " ", "")
	}
	if said.Code == "" {
		said.Code = "UnknownError"
	}
	return &smithy.GenericAPIError{Code: said.Code, Message: said.Message}
}

// etagOf is the ETag without its quotes.
func etagOf(h http.Header) string { return strings.Trim(h.Get("Etag"), `"`) }

// modified is zero where the server does not say it.
func modified(h http.Header) (time.Time, error) {
	text := h.Get("Last-Modified")
	if text == "" {
		return time.Time{}, nil
	}
	at, err := smithytime.ParseHTTPDate(text)
	if err != nil {
		return time.Time{}, &smithy.DeserializationError{Err: fmt.Errorf("time of last modification %q: %w", text, err)}
	}
	return at, nil
}

// metadata has the names in lower case.
func metadata(h http.Header) map[string]string {
	var all map[string]string
	for name, values := range h {
		short, ok := strings.CutPrefix(name, "X-Amz-Meta-")
		if !ok || len(values) == 0 {
			continue
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[strings.ToLower(short)] = values[0]
	}
	return all
}

// A copyResult is what a server says of a copy that it has made.
type copyResult struct {
	ETag           string
	LastModified   string
	ChecksumSHA256 string
}

func readCopyResult(body io.Reader) (result copyResult, at time.Time, err error) {
	if err = xml.NewDecoder(body).Decode(&result); err == nil && result.LastModified != "" {
		at, err = smithytime.ParseDateTime(result.LastModified)
	}
	if err != nil {
		err = &smithy.DeserializationError{Err: fmt.Errorf("result of the copy: %w", err)}
	}
	return result, at, err
}
