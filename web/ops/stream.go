package ops

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
)

// Content is an answer that is made while it is sent.
type Content struct {
	Type string // media type
	Name string // of a file that it is saved as

	// Write writes it. Until the first byte its error is answered as a problem; later it
	// breaks the connection, so that nobody takes the beginning for the whole.
	Write func(ctx context.Context, w io.Writer) error
	// Digest is its SHA-256 once it is written, for the trailer.
	Digest func() []byte
}

// digestTrailer is that of RFC 9530.
const digestTrailer = "Repr-Digest"

// RegisterContent adds an operation whose answer is content.
func RegisterContent[I any](a *API, o Operation, handler func(context.Context, access.Caller, *I) (*Content, error)) {
	o.streams = true
	if !a.add(o, reflect.TypeFor[I](), reflect.TypeFor[struct{}]()) {
		return
	}
	defer func() {
		a.document(o)
		for _, h := range operationsOf(a.huma.OpenAPI().Paths[o.Path]) { // the type depends on what is sent
			h.Responses["200"].Content = map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
		}
	}()
	huma.Register(a.huma, a.documented(o), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		c, _ := ctx.Value(callerKey{}).(access.Caller)
		content, err := handler(ctx, c, in)
		if err != nil {
			p, ours := problemOf(err)
			if ours && ctx.Err() == nil {
				a.log.WarnContext(ctx, "request failed; the caller was asked to try again", "operation", o.ID, "err", err)
			}
			return nil, p
		}
		return &huma.StreamResponse{Body: func(h huma.Context) {
			_, w := humago.Unwrap(h)
			a.send(ctx, o, w, content)
		}}, nil
	})
}

func (a *API) send(ctx context.Context, o Operation, w http.ResponseWriter, c *Content) {
	out := &sending{ResponseWriter: w, content: c, control: http.NewResponseController(w)}
	err := c.Write(ctx, out)
	switch {
	case err == nil:
		out.begin()
		w.Header().Set(digestTrailer, fmt.Sprintf("sha-256=:%s:", base64.StdEncoding.EncodeToString(c.Digest())))
	case !out.begun:
		p, ours := problemOf(err)
		if ours && ctx.Err() == nil {
			a.log.WarnContext(ctx, "request failed; the caller was asked to try again", "operation", o.ID, "err", err)
		}
		reply.Refuse(w, *p)
	default:
		if ctx.Err() == nil && !errors.Is(err, errGone) {
			a.log.WarnContext(ctx, "content broke off; the caller sees a broken connection", "operation", o.ID, "err", err)
		}
		if conn, _, hijacked := out.control.Hijack(); hijacked == nil {
			conn.Close() //nolint:errcheck // it is broken on purpose
		}
	}
}

// sending has the header written before the first byte, and gives the reader a minute for
// each of the pieces.
type sending struct {
	http.ResponseWriter

	content  *Content
	control  *http.ResponseController
	begun    bool
	deadline time.Time // when it was last moved
}

// readerTime is how long a reader may take nothing.
const readerTime = time.Minute

// errGone says that the reader takes nothing more.
var errGone = errors.New("the reader is gone")

func (s *sending) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.Header()
	h.Set("Content-Type", s.content.Type)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": s.content.Name}))
	h.Set("Trailer", digestTrailer)
	s.WriteHeader(http.StatusOK)
}

func (s *sending) Write(p []byte) (int, error) {
	s.begin()
	if now := time.Now(); now.Sub(s.deadline) > readerTime/10 {
		s.deadline = now
		if err := s.control.SetWriteDeadline(now.Add(readerTime)); err != nil {
			return 0, fmt.Errorf("%w: %w", errGone, err)
		}
	}
	n, err := s.ResponseWriter.Write(p)
	if err != nil {
		return n, fmt.Errorf("%w: %w", errGone, err)
	}
	return n, nil
}
