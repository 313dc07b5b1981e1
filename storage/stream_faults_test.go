package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	smithy "github.com/aws/smithy-go"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// A connection that breaks costs the part that was on it.
func TestStreamSendsThePartAgainThatWasCut(t *testing.T) {
	t.Parallel()
	at := target(t, "stream")
	direct := create(t, at)
	proxy, at := proxied(t, at)
	p := &producer{content: noise(3*minPart + 17)}
	s := p.stream()
	produce := s.From
	s.From = func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		if len(p.from) == 0 {
			proxy.CutAfter(minPart * 3 / 2)
		} else {
			proxy.Resume()
		}
		return produce(ctx, offset)
	}
	must.Get(open(t, at, storage.Options{}).PutStream(t.Context(), "key", describe(p.content), s))(t)
	if !slices.Equal(p.from, []int64{0, minPart}) || p.open != 0 || !slices.Equal(p.told, ends(s.Size)) {
		t.Errorf("begun at %v, notified of %v, %d left open", p.from, p.told, p.open)
	}
	holds(t, direct, p.content)
}

// What a producer takes back is replaced, wherever it notices.
func TestStreamIsRewound(t *testing.T) {
	t.Parallel()
	const size = 3*minPart + 17
	for name, notices := range map[string]func(offset, end int64) bool{
		"within a part":                   func(offset, _ int64) bool { return offset > 2*minPart+1000 },
		"between parts":                   func(offset, _ int64) bool { return offset == 2*minPart },
		"with the last bytes of a part":   func(_, end int64) bool { return end == 2*minPart },
		"with the last bytes":             func(_, end int64) bool { return end == size },
		"at the end":                      func(offset, end int64) bool { return offset == size && end == size },
		"when it should send a part anew": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := create(t, target(t, "stream"))
			p := &producer{content: noise(size)}
			rewound := false
			back := func() error {
				rewound = true
				return fmt.Errorf("a bad file: %w", &storage.RewindError{Offset: minPart, Err: io.EOF})
			}
			p.piece = func(offset int64, piece []byte) error {
				switch {
				case rewound:
				case notices != nil && notices(offset, offset+int64(len(piece))):
					return back()
				case notices == nil && offset > 2*minPart:
					return errors.New("a glitch")
				case offset >= minPart && len(piece) > 0:
					piece[0] ^= 1
				}
				return nil
			}
			s := p.stream()
			produce := s.From
			s.From = func(ctx context.Context, offset int64) (io.ReadCloser, error) {
				if offset == 2*minPart {
					return nil, back()
				}
				return produce(ctx, offset)
			}
			must.Get(b.PutStream(t.Context(), "key", describe(p.content), s))(t)
			if !rewound || !slices.Equal(p.from, []int64{0, minPart}) || p.open != 0 {
				t.Errorf("rewound %t, begun at %v, %d left open", rewound, p.from, p.open)
			}
			// A process that dies after a rewind must not resume behind the bytes that were taken back.
			if fell := slices.IndexFunc(p.told[1:], func(at int64) bool { return at == minPart }); fell < 0 || !slices.Equal(p.told[fell+1:], ends(size)) {
				t.Errorf("notified of %v", p.told)
			}
			holds(t, b, p.content)
		})
	}
}

// A producer cannot go back to where no part begins, nor without end.
func TestRewindThatLeadsNowhereEndsTheStream(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "stream"))
	for _, offset := range []int64{-minPart, 1, 2 * minPart} {
		p := &producer{content: noise(3 * minPart)}
		p.piece = func(at int64, _ []byte) error {
			if at > minPart && len(p.from) < 3 {
				return &storage.RewindError{Offset: offset, Err: errors.New("a bad file")}
			}
			return nil
		}
		var rewind *storage.RewindError
		if _, err := b.PutStream(t.Context(), "key", describe(p.content), p.stream()); !errors.As(err, &rewind) || len(p.from) != 1 {
			t.Errorf("PutStream that goes back to %d = %v, begun at %v", offset, err, p.from)
		}
		nothingOpen(t, b, 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &producer{content: noise(17)}
	s := p.stream()
	s.From = func(context.Context, int64) (io.ReadCloser, error) {
		if p.made++; p.made == 100 {
			cancel()
		}
		return nil, &storage.RewindError{Err: errors.New("again")}
	}
	if _, err := b.PutStream(ctx, "key", describe(p.content), s); !errors.Is(err, context.Canceled) || p.made != 100 {
		t.Errorf("PutStream = %v after %d calls, want context.Canceled after 100", err, p.made)
	}
}

// What can never be completed must not stay and cost money; what can, must. In no
// case is there an object.
func TestOnlyAStreamThatCanBeResumedStays(t *testing.T) {
	t.Parallel()
	down := errors.New("the source is down")
	breaks := func(err error) func(*producer, *storage.Stream) {
		return func(p *producer, _ *storage.Stream) {
			p.piece = func(int64, []byte) error { return err }
		}
	}
	tells := func(err error) func(*producer, *storage.Stream) {
		return func(_ *producer, s *storage.Stream) {
			s.Sent = func(context.Context, int64) error { return err }
		}
	}
	for name, tt := range map[string]struct {
		change func(*producer, *storage.Stream)
		want   error // nil for any that is transient
		tries  int
		stays  int // if the ID is kept
	}{
		"source is down":       {breaks(down), down, 3, 1},
		"source has changed":   {breaks(storage.ErrChanged), storage.ErrChanged, 1, 0},
		"caller wants no more": {tells(down), down, 1, 1},
		"caller has lost it":   {tells(storage.ErrChanged), storage.ErrChanged, 1, 1},
		"too short":            {func(_ *producer, s *storage.Stream) { s.Size++ }, nil, 3, 1},
		"too long":             {func(_ *producer, s *storage.Stream) { s.Size-- }, nil, 3, 1},
		"too long by a part":   {func(p *producer, s *storage.Stream) { p.content, s.Size = noise(minPart+17), minPart }, nil, 3, 1},
	} {
		for _, kept := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", kept ", kept), func(t *testing.T) {
				t.Parallel()
				b := create(t, target(t, "stream"))
				p := &producer{content: noise(17)}
				s := p.stream()
				stays := tt.stays
				if !kept {
					s.SaveID, stays = nil, 0
				}
				tt.change(p, &s)
				_, err := b.PutStream(t.Context(), "key", describe(p.content), s)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && (isFinal(err) || errors.Is(err, io.EOF)) {
					t.Errorf("PutStream = %v, want %v", err, tt.want)
				}
				if len(p.from) != tt.tries || p.open != 0 {
					t.Errorf("begun at %v, %d left open", p.from, p.open)
				}
				if _, err := b.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Head = %v, want ErrNotFound", err)
				}
				nothingOpen(t, b, stays)
			})
		}
	}
}

// What the server has must be what was sent, part by part and in all.
func TestStreamThatTheServerHasWrongIsNoObject(t *testing.T) {
	t.Parallel()
	content := noise(minPart + 17)
	wrong := storage.ExpectedChecksum([32]byte{1}, nil)
	header := func(name, value string) func(*gate) {
		return func(g *gate) {
			g.forward.ModifyResponse = func(r *http.Response) error {
				if isPart(r.Request) {
					r.Header.Set(name, value)
				}
				return nil
			}
		}
	}
	body := func(element, value string) func(*gate) {
		return func(g *gate) {
			g.rewrite(isComplete, func(body string) string {
				before, rest, found := strings.Cut(body, "<"+element+">")
				if !found {
					t.Errorf("there is no %s in %s", element, body)
				}
				_, after, _ := strings.Cut(rest, "</")
				return before + "<" + element + ">" + value + "</" + after
			})
		}
	}
	type builder func(*testing.T, storage.Target, func(http.ResponseWriter, *http.Request) bool) *gate
	for name, tt := range map[string]struct {
		build  builder
		mode   storage.ChecksumMode
		change func(*gate)
	}{
		"checksum of a part":         {newTLSGate, "", header("X-Amz-Checksum-Sha256", wrong)},
		"checksum of all":            {newTLSGate, "", body("ChecksumSHA256", wrong+"-2")},
		"ETag of a part, with ETags": {newTLSGate, storage.ChecksumETag, header("Etag", `"0123"`)},
		"ETag of all, with ETags":    {newTLSGate, storage.ChecksumETag, body("ETag", "0123-2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := target(t, "stream")
			direct := create(t, at)
			g := tt.build(t, at, nil)
			tt.change(g)
			way := g.through(at)
			way.Checksum = tt.mode
			p := &producer{content: content}
			if _, err := open(t, way, storage.Options{}).PutStream(t.Context(), "key", describe(content), p.stream()); !errors.Is(err, storage.ErrDigest) {
				t.Errorf("PutStream = %v, want ErrDigest", err)
			}
			if _, err := direct.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Head = %v, want ErrNotFound", err)
			}
			nothingOpen(t, direct, 0)
		})
	}
}

// An ETag that is not the MD5 tells nothing of the bytes: they are read, each part against what was
// sent of it.
func TestStreamThatNothingProvesIsRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*http.Request) // of a part
		want   error
	}{
		"the same bytes": {func(*http.Request) {}, nil},
		"other bytes": {func(r *http.Request) {
			if r.URL.Query().Get("partNumber") == "2" {
				r.Body = io.NopCloser(flipped{r.Body})
			}
		}, storage.ErrDigest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := noise(minPart + 1000)
			at := target(t, "stream")
			direct := create(t, at)
			g, _ := going(t, at, func(r *http.Request) {
				if isPart(r) {
					tt.change(r)
				}
			}, "no checksums", "ETags of its own")
			p := &producer{content: content}
			_, err := open(t, g.through(at), storage.Options{}).PutStream(t.Context(), "key", describe(content), p.stream())
			if !errors.Is(err, tt.want) {
				t.Errorf("PutStream = %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				if _, err := direct.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Head = %v, want ErrNotFound", err)
				}
				return
			}
			if !bytes.Equal(get(t, direct, "key"), content) {
				t.Error("the object has other bytes")
			}
		})
	}
}

// Over TLS the server itself notices what changes on the way, and refuses it.
func TestStreamIsCheckedByTheServer(t *testing.T) {
	t.Parallel()
	at := target(t, "stream")
	direct := create(t, at)
	var changed atomic.Bool
	g := newTLSGate(t, at, func(_ http.ResponseWriter, r *http.Request) bool {
		if isPart(r) && !changed.Swap(true) {
			body := r.Body
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(body, 1000), io.LimitReader(flipped{body}, 1), body), body}
		}
		return false
	})
	p := &producer{content: noise(minPart + 17)}
	must.Get(open(t, g.through(at), storage.Options{}).PutStream(t.Context(), "key", describe(p.content), p.stream()))(t)
	if !slices.Equal(p.from, []int64{0, 0}) {
		t.Errorf("begun at %v, want the first part twice", p.from)
	}
	holds(t, direct, p.content)
}

type flipped struct{ io.Reader }

func (f flipped) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	for i := range p[:n] {
		p[i] ^= 1
	}
	return n, err
}

// A server that does not know trailing checksums is held to its ETags, also by
// the one who takes the upload up. One that knows them is believed when it complains.
func TestAServerWithoutTrailingChecksumsIsHeldToItsETags(t *testing.T) {
	t.Parallel()
	const size = 2*minPart + 17
	trailing := func(r *http.Request) bool { return r.Header.Get("X-Amz-Trailer") != "" }
	refuses := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if trailing(r) {
				_, _ = io.Copy(io.Discard, r.Body)
				answer(w, status, code)
			}
			return trailing(r)
		}
	}
	for name, tt := range map[string]struct {
		intercept func(http.ResponseWriter, *http.Request) bool
		modify    func(*http.Response) error
	}{
		"it refuses them":         {refuses(http.StatusNotImplemented, "NotImplemented"), nil},
		"it takes them for wrong": {refuses(http.StatusBadRequest, "InvalidArgument"), nil},
		"it passes over them": {nil, func(r *http.Response) error {
			if trailing(r.Request) {
				r.Header.Del("X-Amz-Checksum-Sha256")
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := target(t, "stream")
			direct := create(t, at)
			g := newTLSGate(t, at, tt.intercept)
			g.forward.ModifyResponse = tt.modify
			b := open(t, g.through(at), storage.Options{})
			p := &producer{content: noise(size)}
			s := p.stream()
			told := s.Sent
			stop := errors.New("stop")
			s.Sent = func(ctx context.Context, offset int64) error {
				if offset == 2*minPart {
					return stop
				}
				return told(ctx, offset)
			}
			if _, err := b.PutStream(t.Context(), "key", describe(p.content), s); !errors.Is(err, stop) {
				t.Fatal(err)
			}
			if !slices.Equal(p.from, []int64{0, 0}) || len(p.ids) != 2 {
				t.Errorf("begun at %v, uploads %v", p.from, p.ids)
			}
			s.Resume, s.Offset, s.Sent = p.ids[1], 2*minPart, nil
			must.Get(b.PutStream(t.Context(), "key", describe(p.content), s))(t)
			if !slices.Equal(p.from, []int64{0, 0, 2 * minPart}) || len(p.ids) != 2 {
				t.Errorf("begun at %v, uploads %v", p.from, p.ids)
			}
			holds(t, direct, p.content)
			nothingOpen(t, direct, 0)
		})
	}

	at := target(t, "stream")
	create(t, at)
	var parts atomic.Int32
	g := newTLSGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if !trailing(r) || parts.Add(1) == 1 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, http.StatusBadRequest, "InvalidArgument")
		return true
	})
	p := &producer{content: noise(size)}
	if _, err := open(t, g.through(at), storage.Options{}).PutStream(t.Context(), "key", describe(p.content), p.stream()); err == nil || len(p.ids) != 1 {
		t.Errorf("PutStream = %v with uploads %v, want an error of the second part", err, p.ids)
	}

	p = &producer{content: noise(size)}
	p.piece = func(int64, []byte) error { return &smithy.GenericAPIError{Code: "InvalidArgument"} } // where it reads from
	if _, err := open(t, at, storage.Options{}).PutStream(t.Context(), "key", describe(p.content), p.stream()); err == nil || len(p.ids) != 1 {
		t.Errorf("PutStream = %v with uploads %v, want the error of the producer", err, p.ids)
	}
}
