package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// The rules are rebuilt for each experiment, since they count.

// refusal answers with an error of S3.
func refusal(status int, code, message string) *rule {
	body := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>%s</Message><RequestId>chaos</RequestId></Error>", code, message)
	return &rule{name: fmt.Sprint(status, " ", code), answer: func(w http.ResponseWriter, r *http.Request) bool {
		drain(r)
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			io.WriteString(w, body) //nolint:errcheck // the client has gone
		}
		return true
	}}
}

// drain reads what is being sent, or the client would see a broken connection in
// the place of the answer.
func drain(r *http.Request) {
	io.Copy(io.Discard, io.LimitReader(r.Body, 1<<30)) //nolint:errcheck // the client has gone
}

// badSignature spoils the signature, so that the gateway itself refuses.
func badSignature() *rule {
	return &rule{name: "wrong secret", answer: func(_ http.ResponseWriter, r *http.Request) bool {
		auth := r.Header.Get("Authorization")
		if i := strings.LastIndex(auth, "Signature="); i >= 0 && i+10 < len(auth) {
			flipped := []byte(auth)
			flipped[i+10] = "123456789abcdef0"[strings.IndexByte("0123456789abcdef", auth[i+10])]
			r.Header.Set("Authorization", string(flipped))
		}
		return false
	}}
}

// portal answers like the sign-in page of a network: HTML, with 200.
func portal() *rule {
	const page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>Please sign in to use this network.</p></body></html>\n"
	return &rule{name: "HTML with 200", answer: func(w http.ResponseWriter, r *http.Request) bool {
		drain(r)
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		if r.Method != http.MethodHead {
			io.WriteString(w, page) //nolint:errcheck // the client has gone
		}
		return true
	}}
}

// slow holds an answer back.
func slow(d time.Duration) *rule {
	return &rule{name: fmt.Sprint("answers after ", d), answer: func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
		return false
	}}
}

// cutBody ends the connection in the middle of a body.
func cutBody() *rule {
	return &rule{name: "body cut", change: func(r *http.Response) error {
		if r.ContentLength > 1 {
			injure.Cut(r, rand.N(r.ContentLength))
		}
		return nil
	}}
}

// shortBody takes away the end of a body and says that this is all.
func shortBody() *rule {
	return &rule{name: "body shortened", change: func(r *http.Response) error {
		if r.ContentLength > 1 {
			injure.Shorten(r, rand.N(r.ContentLength))
		}
		return nil
	}}
}

// flipByte changes one byte of a body.
func flipByte() *rule {
	return &rule{name: "byte flipped", change: func(r *http.Response) error {
		if r.ContentLength > 0 {
			injure.Flip(r, rand.N(r.ContentLength))
		}
		return nil
	}}
}

// trickle has large bodies come at so many bytes a second, until the fault ends.
func trickle(rate int) *rule {
	slow := &rule{name: "slow body"}
	slow.change = func(r *http.Response) error {
		if r.ContentLength > 4<<20 {
			r.Body = &slowly{r.Body, r.Request.Context(), rate, &slow.over}
		}
		return nil
	}
	return slow
}

type slowly struct {
	io.ReadCloser

	ctx  context.Context //nolint:containedctx // a request's, for as long as its answer is read
	rate int
	over *atomic.Bool
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.over.Load() {
		return s.ReadCloser.Read(p) //nolint:wrapcheck // it stands for the body
	}
	n, err := s.ReadCloser.Read(p[:min(len(p), s.rate/10)])
	if gone := sleep(s.ctx, time.Duration(n)*time.Second/time.Duration(s.rate)); gone != nil {
		err = gone
	}
	return n, err //nolint:wrapcheck // it stands for the body
}

// decay flips a byte on the store's disk, each time after it has answered that it has a
// restored object in staging or under its name. What it says of the object stays.
func (s *site) decay() *rule {
	restoring := slices.Collect(maps.Values(s.Restoring()))
	return &rule{name: "byte flipped at rest", once: true, match: func(r *http.Request) bool {
		staged := r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && strings.HasSuffix(keyOf(r), "/Restore.tar")
		return staged || r.Method == http.MethodPut && slices.Contains(restoring, bucketOf(r)) && r.Header.Get("X-Amz-Copy-Source") != ""
	}, change: func(r *http.Response) error {
		if r.StatusCode != http.StatusOK {
			return nil
		}
		path := filepath.Join(s.bucketDir(bucketOf(r.Request)), keyOf(r.Request))
		content, err := os.ReadFile(path)
		if err == nil && len(content) > 0 {
			content[rand.IntN(len(content))] ^= 1
			err = os.WriteFile(path, content, 0) // the file is there, with its attributes
		}
		return err //nolint:wrapcheck // the proxy says so
	}}
}

// emptyList answers a listing with a document that is none.
func emptyList() *rule {
	const body = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Health><Status>ok</Status></Health>"
	return &rule{name: "listing without a listing", match: isList, change: func(r *http.Response) error {
		r.Body.Close() //nolint:errcheck // not read
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}}
}

// isRemoval matches requests that remove objects, one or many.
func isRemoval(r *http.Request) bool {
	return r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("delete")
}

func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Has("list-type")
}

// isRead matches requests for the content of objects.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet && keyOf(r) != "" && r.URL.RawQuery != "uploads"
}

// in narrows a rule to buckets.
func (r *rule) in(buckets ...string) *rule {
	before := r.match
	r.match = func(req *http.Request) bool {
		for _, b := range buckets {
			if bucketOf(req) == b && (before == nil || before(req)) {
				return true
			}
		}
		return false
	}
	return r
}

func (r *rule) when(match func(*http.Request) bool) *rule {
	r.match = match
	return r
}

func (r *rule) some(share float64) *rule {
	r.share = share
	return r
}

func (r *rule) firstOnly() *rule {
	r.once = true
	return r
}

// maxSkew is how far S3 lets clocks differ.
const maxSkew = 15 * time.Minute

// skewed makes S3's clock, as one process sees it, differ by off. Requests that are
// dated right by that clock are signed again for the gateway's.
func skewed(off time.Duration, keys aws.Credentials, region string) *rule {
	refused := refusal(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	date := func(h http.Header) { h.Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat)) }
	return &rule{
		name: fmt.Sprint("clocks differ by ", off),
		answer: func(w http.ResponseWriter, r *http.Request) bool {
			at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if err != nil || at.Sub(time.Now().Add(off)).Abs() > maxSkew {
				date(w.Header())
				return refused.answer(w, r)
			}
			hash := r.Header.Get("X-Amz-Content-Sha256")
			r.Header.Del("Authorization")
			forward := r.Header.Clone()
			r.Header = http.Header{} // only what Farol has signed before is signed again
			for name, values := range forward {
				if strings.HasPrefix(name, "X-Amz-") || name == "Content-Type" || name == "Content-Md5" || name == "Content-Encoding" {
					r.Header[name] = values
				}
			}
			err = signer.SignHTTP(context.WithoutCancel(r.Context()), keys, r, hash, "s3", region, time.Now())
			for name, values := range forward {
				if r.Header.Get(name) == "" {
					r.Header[name] = values
				}
			}
			return err != nil
		},
		change: func(r *http.Response) error { date(r.Header); return nil },
	}
}
