package wire

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
func (r *Request) accept(response *http.Response) error {
	success := response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices
	if success && r.Method == http.MethodGet {
		err := examine(r.Operation, response)
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
	if success && strings.EqualFold(rootOf(text), "Error") {
		// S3 said that it would do it, and found out in the middle that it cannot.
		response.StatusCode, success = http.StatusInternalServerError, false
	}
	if !success {
		return refusal(response.StatusCode, text)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return examine(r.Operation, response)
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

// ETag is that of the object, without its quotes.
func (r *Reply) ETag() string { return Unquoted(r.Header.Get("Etag")) }

// Modified is zero where the server does not say it.
func (r *Reply) Modified() (time.Time, error) {
	text := r.Header.Get("Last-Modified")
	if text == "" {
		return time.Time{}, nil
	}
	at, err := smithytime.ParseHTTPDate(text)
	if err != nil {
		return time.Time{}, &smithy.DeserializationError{Err: fmt.Errorf("time of last modification %q: %w", text, err)}
	}
	return at, nil
}

// Metadata is that of the object, with the names in lower case.
func (r *Reply) Metadata() map[string]string {
	var all map[string]string
	for name, values := range r.Header {
		short, ok := strings.CutPrefix(name, metaPrefix)
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

// metaPrefix is in front of the names of metadata.
const metaPrefix = "X-Amz-Meta-"

// SetMetadata adds metadata of an object, whose names are in lower case.
func (r *Request) SetMetadata(all map[string]string) {
	for name, value := range all {
		r.Header[http.CanonicalHeaderKey(metaPrefix+name)] = []string{value}
	}
}

// A Copy is what a server says of one that it has made.
type Copy struct {
	ETag           string // without its quotes
	ChecksumSHA256 string // base64; "" if it does not say
	LastModified   time.Time
}

// Copied reads the answer to a copy.
func (r *Reply) Copied() (Copy, error) {
	var said struct{ ETag, LastModified, ChecksumSHA256 string }
	var at time.Time
	err := xml.NewDecoder(r.Body).Decode(&said)
	if err == nil && said.LastModified != "" {
		at, err = smithytime.ParseDateTime(said.LastModified)
	}
	if err != nil {
		err = &smithy.DeserializationError{Err: fmt.Errorf("result of the copy: %w", err)}
	}
	return Copy{Unquoted(said.ETag), said.ChecksumSHA256, at}, err
}

// Unquoted is an ETag as a server gives it, without its quotes, and without the mark of a proxy that
// packs what it passes on (RFC 9110, section 8.8.3): the server itself has it without.
func Unquoted(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// Quoted is an ETag as headers have it, and "" for none.
func Quoted(etag string) string {
	if etag == "" {
		return ""
	}
	return `"` + etag + `"`
}
