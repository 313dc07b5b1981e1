// Package storeways has what stores were seen to do otherwise than the gateway that all tests use.
package storeways

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// A Way makes a proxy before the gateway answer as another store does.
type Way struct {
	Name string
	// Request may answer by itself, and returns true then; or change the request.
	Request func(w http.ResponseWriter, r *http.Request) bool
	// Response changes an answer of the gateway.
	Response func(r *http.Response) error
}

// most is how much of a body that is no object is read.
const most = 4 << 20

// All are what stores were seen to do otherwise than the gateway: Ceph RGW 16.2, MinIO of
// February 2026, OpenStack Swift 2.30, Google Cloud Storage, and nginx before any of them. Some
// remember what they have seen: each call makes new ones. The key signs what they change.
func All(accessKeyID, secretAccessKey string) []Way {
	re := resigner{v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), accessKeyID, secretAccessKey}
	return append(ofProxies(), []Way{
		{"no checksums", re.withoutChecksums, answersWithout("(?s)<Checksum(SHA256|Type|Algorithm)>[^<]*</Checksum(SHA256|Type|Algorithm)>", "X-Amz-Checksum-Sha256", "X-Amz-Checksum-Type")}, //nolint:bodyclose // the proxy closes it
		{"refuses checksums", refuses(http.StatusBadRequest, "InvalidRequest", func(r *http.Request) bool {
			return r.Header.Get("X-Amz-Checksum-Sha256")+r.Header.Get("X-Amz-Checksum-Algorithm")+r.Header.Get("X-Amz-Sdk-Checksum-Algorithm")+r.Header.Get("X-Amz-Trailer") != "" && !r.URL.Query().Has("delete")
		}), nil},
		copiesPartsWithout(),
		{"no trailing checksums", refuses(http.StatusNotImplemented, "NotImplemented", func(r *http.Request) bool { return r.Header.Get("X-Amz-Trailer") != "" }), nil},
		{"no ETag of what is completed", nil, inAnswersTo(isComplete, `<ETag>[^<]*</ETag>`, "<ETag></ETag>")},                                                    //nolint:bodyclose // the proxy closes it
		{"another ETag of what is completed", nil, inAnswersTo(isComplete, `<ETag>[^<]*</ETag>`, "<ETag>&quot;00000000000000000000000000000000-2&quot;</ETag>")}, //nolint:bodyclose // the proxy closes it
		{"ended uploads are no keys", nil, inAnswersTo(isUpload, "<Code>NoSuchUpload</Code>", "<Code>NoSuchKey</Code>")},                                         //nolint:bodyclose // the proxy closes it
		{"ended uploads without a word", nil, func(r *http.Response) error {
			if isUpload(r.Request) && r.StatusCode == http.StatusNotFound {
				return replace(r, nil)
			}
			return nil
		}},
		{"HTML without content", nil, func(r *http.Response) error {
			if r.ContentLength <= 0 && r.Request.Method != http.MethodGet {
				r.Header.Set("Content-Type", "text/html; charset=UTF-8")
			}
			return nil
		}},
		{"batches need Content-MD5", refuses(http.StatusBadRequest, "InvalidRequest", func(r *http.Request) bool {
			return r.URL.Query().Has("delete") && r.Header.Get("Content-Md5") == ""
		}), nil},
		{"no batches", refuses(http.StatusNotImplemented, "NotImplemented", func(r *http.Request) bool { return r.URL.Query().Has("delete") }), nil},
		{"no copies", refuses(http.StatusNotImplemented, "NotImplemented", func(r *http.Request) bool { return r.Header.Get("X-Amz-Copy-Source") != "" }), nil},
		{"no copies of parts", refuses(http.StatusNotImplemented, "NotImplemented", func(r *http.Request) bool {
			return r.Header.Get("X-Amz-Copy-Source") != "" && r.URL.Query().Has("partNumber")
		}), nil},
		{"no ETag of a copy", nil, inAnswersTo(func(r *http.Request) bool { //nolint:bodyclose // the proxy closes it
			return r.Header.Get("X-Amz-Copy-Source") != "" && !r.URL.Query().Has("partNumber")
		}, `<ETag>[^<]*</ETag>`, "")},
		{"conditions unheeded", func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
			return false
		}, nil},
		{"no conditions on what was uploaded in parts", refuses(http.StatusPreconditionFailed, "PreconditionFailed", func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("If-Match")+r.Header.Get("X-Amz-Copy-Source-If-Match"), "-")
		}), nil},
		{"no condition on writing", refuses(http.StatusNotImplemented, "NotImplemented", func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }), nil},
		{"short metadata", refuses(http.StatusInternalServerError, "InternalError", longMetadata), nil},
		{"short metadata, said", refuses(http.StatusBadRequest, "MetadataTooLarge", longMetadata), nil},
		{"ETags of its own", re.ownETags, ownETagsOut},
		{"a proxy that changes headers", func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Set("Accept-Encoding", "gzip")
			r.Header.Set("User-Agent", "proxy")
			r.Header.Del("Amz-Sdk-Invocation-Id")
			r.Header.Del("Amz-Sdk-Request")
			return false
		}, nil},
	}...)
}

// ofProxies are what may stand before a store does to what passes.
func ofProxies() []Way {
	return []Way{
		{"does not want to be asked", func(w http.ResponseWriter, r *http.Request) bool {
			asked := r.Header.Get("Expect") != ""
			if asked {
				w.WriteHeader(http.StatusExpectationFailed)
			}
			return asked
		}, nil},
		{"answers without a length", nil, func(r *http.Response) error {
			if r.Request.Method == http.MethodHead || r.Request.Method == http.MethodGet && r.Header.Get("Etag") != "" {
				r.Header.Del("Content-Length")
				r.ContentLength = -1
			}
			return nil
		}},
		{"no ETag of what is written", nil, func(r *http.Response) error {
			if r.Request.Method == http.MethodPut {
				r.Header.Del("Etag")
			}
			return nil
		}},
		{"no metadata", nil, func(r *http.Response) error {
			maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Amz-Meta-") })
			return nil
		}},
		{"content types of its own", nil, func(r *http.Response) error {
			if kind := r.Header.Get("Content-Type"); kind != "" && r.Header.Get("Etag") != "" {
				r.Header.Set("Content-Type", kind+"; charset=utf-8")
			}
			return nil
		}},
		{"weak ETags", nil, func(r *http.Response) error {
			if etag := r.Header.Get("Etag"); etag != "" {
				r.Header.Set("Etag", "W/"+etag)
			}
			return nil
		}},
	}
}

func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

func isUpload(r *http.Request) bool { return r.URL.Query().Has("uploadId") }

// longMetadata finds a value that is longer than OpenStack Swift takes.
func longMetadata(r *http.Request) bool {
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") && len(values[0]) > 256 {
			return true
		}
	}
	return false
}

// refuses answers what satisfies is with an error, as S3 writes it.
func refuses(status int, code string, is func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if is(r) {
			_, _ = io.Copy(io.Discard, r.Body) // or the client may not read the answer
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>not here</Message></Error>", code)
			return true
		}
		return false
	}
}

// copiesPartsWithout takes no copied part into an upload that was begun with checksums, as MinIO.
func copiesPartsWithout() Way {
	var begun sync.Map
	summed := regexp.MustCompile(`<UploadId>([^<]*)</UploadId>`)
	return Way{"no checksums of copied parts", refuses(http.StatusBadRequest, "InvalidArgument", func(r *http.Request) bool {
		_, with := begun.Load(r.URL.Query().Get("uploadId"))
		return with && r.Header.Get("X-Amz-Copy-Source") != ""
	}), func(r *http.Response) error {
		if !r.Request.URL.Query().Has("uploads") || r.Request.Header.Get("X-Amz-Checksum-Algorithm") == "" {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(r.Body, most))
		if m := summed.FindSubmatch(text); m != nil {
			begun.Store(string(m[1]), true)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		return err
	}}
}

func inAnswersTo(is func(*http.Request) bool, pattern, with string) func(*http.Response) error {
	find := regexp.MustCompile(pattern)
	return func(r *http.Response) error {
		if !is(r.Request) {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(r.Body, most))
		if err != nil {
			return err
		}
		return replace(r, find.ReplaceAll(text, []byte(with)))
	}
}

// replace gives an answer another body.
func replace(r *http.Response, text []byte) error {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	r.TransferEncoding = nil
	return nil
}

// answersWithout takes elements and headers out of all answers that are no objects.
func answersWithout(pattern string, headers ...string) func(*http.Response) error {
	in := inAnswersTo(func(r *http.Request) bool { return r.Method != http.MethodHead }, pattern, "") //nolint:bodyclose // the proxy closes it
	return func(r *http.Response) error {
		for _, name := range headers {
			r.Header.Del(name)
		}
		if strings.Contains(r.Header.Get("Content-Type"), "xml") {
			return in(r)
		}
		return nil
	}
}

// A resigner signs what a proxy has changed.
type resigner struct {
	*v4.Signer

	id, secret string
}

func (s resigner) sign(r *http.Request) bool {
	r.Header.Del("Authorization")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err == nil {
		err = s.SignHTTP(r.Context(), aws.Credentials{AccessKeyID: s.id, SecretAccessKey: s.secret}, r, r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", at)
	}
	return err != nil
}

// withoutChecksums is a store that ignores what it does not know.
func (s resigner) withoutChecksums(_ http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("X-Amz-Trailer") != "" || r.Header.Get("Authorization") == "" {
		return false
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") || name == "X-Amz-Sdk-Checksum-Algorithm" {
			r.Header.Del(name)
		}
	}
	if isComplete(r) {
		return s.rewrite(r, func(text []byte) []byte {
			return regexp.MustCompile("<ChecksumSHA256>[^<]*</ChecksumSHA256>").ReplaceAll(text, nil)
		})
	}
	return s.sign(r)
}

// rewrite changes a body, and signs the request.
func (s resigner) rewrite(r *http.Request, change func([]byte) []byte) bool {
	text, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		return true
	}
	text = change(text)
	sum := sha256.Sum256(text)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	return s.sign(r)
}

// ownETag is another ETag for each, and that of it is the first again. A number of parts stays.
func ownETag(etag string) string {
	digest, parts, many := strings.Cut(etag, "-")
	if many {
		return ownETag(digest) + "-" + parts
	}
	return strings.Map(func(c rune) rune {
		if i := strings.IndexRune("0123456789abcdef", c); i >= 0 {
			return rune("fedcba9876543210"[i])
		}
		return c
	}, etag)
}

var etags = regexp.MustCompile(`<ETag>[^<]*</ETag>`)

func ownETagsIn(text []byte) []byte {
	return etags.ReplaceAllFunc(text, func(e []byte) []byte {
		inner := strings.TrimSuffix(strings.TrimPrefix(string(e), "<ETag>"), "</ETag>")
		inner = strings.ReplaceAll(strings.ReplaceAll(inner, "&#34;", `"`), "&quot;", `"`)
		return []byte("<ETag>" + ownETag(inner) + "</ETag>")
	})
}

// ownETags is a store that encrypts with keys of its own, so that no ETag is an MD5.
func (s resigner) ownETags(_ http.ResponseWriter, r *http.Request) bool {
	changed := false
	for _, name := range []string{"If-Match", "X-Amz-Copy-Source-If-Match"} {
		if etag := r.Header.Get(name); etag != "" {
			r.Header.Set(name, ownETag(etag))
			changed = true
		}
	}
	switch {
	case isComplete(r):
		return s.rewrite(r, ownETagsIn)
	case changed:
		return s.sign(r)
	}
	return false
}

func ownETagsOut(r *http.Response) error {
	if etag := r.Header.Get("Etag"); etag != "" {
		r.Header.Set("Etag", ownETag(etag))
	}
	if !strings.Contains(r.Header.Get("Content-Type"), "xml") || r.Request.Method == http.MethodHead {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		return err
	}
	return replace(r, ownETagsIn(text))
}
