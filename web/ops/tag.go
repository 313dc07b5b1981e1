package ops

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// An ETag of ours has two parts, "DECISION/BYTES". Decisions are refused by the first one if
// what they depend on has changed. The second one changes with every byte of the answer, so
// that a caller who has the same bytes is sent none (RFC 9110, section 13.1.2): an item that
// waits for something else has the same first part.
const tagSeparator = "/"

// tagBytes is how long the second part is, before it is base64: no two answers share it by
// chance.
const tagBytes = 12

// tagged reports whether every answer of an operation has an ETag.
func (o Operation) tagged() bool { return o.Method == http.MethodGet && !o.streams }

// tagging answers a request by serve, with an ETag where there is to be one.
func (o Operation) tagging(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter)) {
	if o.streams {
		serve(w)
		return
	}
	decidedOn(r)
	out := &held{ResponseWriter: w, status: http.StatusOK}
	serve(out)
	out.send(o, r)
}

// decidedOn has If-Match name the first part only, which is what a decision depends on.
func decidedOn(r *http.Request) {
	if text := strings.TrimSpace(r.Header.Get("If-Match")); strings.HasPrefix(text, `"`) && strings.HasSuffix(text, `"`) {
		if decision, _, found := strings.Cut(text, tagSeparator); found {
			r.Header.Set("If-Match", decision+`"`)
		}
	}
}

// held keeps an answer until it is whole, and with it known whether the caller has it
// already. It is never more than a page of a list, which is encoded as a whole anyway.
type held struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

// WriteHeader is of http.ResponseWriter.
func (h *held) WriteHeader(status int) { h.status = status }

// Write is of http.ResponseWriter.
func (h *held) Write(p []byte) (int, error) { return h.body.Write(p) } //nolint:wrapcheck // it never fails

// Unwrap is for http.ResponseController.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// send writes the answer to a request, or that the caller has it.
func (h *held) send(o Operation, r *http.Request) {
	if decision := h.Header().Get("ETag"); h.status == http.StatusOK && (o.tagged() || decision != "") {
		tag := entityTag(decision, h.body.Bytes())
		h.Header().Set("ETag", tag)
		if o.tagged() && names(r.Header.Values("If-None-Match"), tag) {
			h.Header().Del("Content-Type")
			h.ResponseWriter.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.ResponseWriter.WriteHeader(h.status)
	h.ResponseWriter.Write(h.body.Bytes()) //nolint:errcheck // a caller who is gone reads nothing
}

// entityTag is the ETag of an answer, and of the decisions that depend on what it shows; "":
// there are none.
func entityTag(decision string, answer []byte) string {
	sum := sha256.Sum256(answer)
	bytes := base64.RawURLEncoding.EncodeToString(sum[:tagBytes])
	if decision = strings.Trim(decision, `"`); decision != "" {
		return `"` + decision + tagSeparator + bytes + `"`
	}
	return `"` + bytes + `"`
}

// names reports whether a list of ETags has one, as the weak comparison of RFC 9110, section
// 8.8.3.2, has it. None of ours has a comma.
func names(list []string, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(list, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}
