package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

func TestGetReadsRanges(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "get"))
	content := noise(1 << 20)
	etag := put(t, b, "key", content).ETag
	put(t, b, "empty", nil)
	size := int64(len(content))
	for _, tt := range []struct {
		key  string
		r    storage.Range
		want []byte
	}{
		{"key", storage.Range{Length: -1}, content},
		{"key", storage.Range{Length: -1, IfMatch: etag}, content},
		{"key", storage.Range{Length: size}, content},
		{"key", storage.Range{Offset: 512, Length: 1}, content[512:513]},
		{"key", storage.Range{Offset: 512, Length: 70_000}, content[512:70_512]},
		{"key", storage.Range{Offset: size - 1, Length: -1}, content[size-1:]},
		{"key", storage.Range{Offset: 100}, nil},
		{"empty", storage.Range{Length: -1}, nil},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.key, tt.r), func(t *testing.T) {
			t.Parallel()
			r := must.Get(b.Get(t.Context(), tt.key, tt.r))(t)
			defer r.Close()
			if err := iotest.TestReader(r, tt.want); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	at := target(t, "errors")
	b := create(t, at)
	put(t, b, "key", []byte("content"))
	missing, stranger, forger := at, at, at
	missing.Bucket += "-missing"
	stranger.AccessKeyID = "nobody"
	forger.SecretAccessKey = "guessed"

	head := func(b *storage.Bucket) error { _, err := b.Head(t.Context(), "key"); return err }
	get := func(b *storage.Bucket, key string, r storage.Range) error {
		_, err := b.Get(t.Context(), key, r)
		return err
	}
	all := storage.Range{Length: -1}
	for name, tt := range map[string]struct {
		err  error
		want error // nil: transient
	}{
		"get of no key":           {get(b, "nothing", all), storage.ErrNotFound},
		"get of another version":  {get(b, "key", storage.Range{Length: -1, IfMatch: "0123"}), storage.ErrChanged},
		"get past the end":        {get(b, "key", storage.Range{Offset: 3, Length: 5}), nil},
		"get behind the end":      {get(b, "key", storage.Range{Offset: 8, Length: 5}), nil},
		"get from no bucket":      {get(open(t, missing, storage.Options{}), "key", all), storage.ErrDenied},
		"get as a stranger":       {get(open(t, stranger, storage.Options{}), "key", all), storage.ErrDenied},
		"get with a wrong secret": {get(open(t, forger, storage.Options{}), "key", all), storage.ErrDenied},
		"head with wrong secret":  {head(open(t, forger, storage.Options{})), storage.ErrDenied},
		"check of no bucket":      {open(t, missing, storage.Options{}).Check(t.Context()), storage.ErrDenied},
		"check as a stranger":     {open(t, stranger, storage.Options{}).Check(t.Context()), storage.ErrDenied},
	} {
		switch {
		case tt.err == nil:
			t.Errorf("%s succeeds", name)
		case tt.want == nil && isFinal(tt.err), tt.want != nil && !errors.Is(tt.err, tt.want):
			t.Errorf("%s = %v, want %v", name, tt.err, tt.want)
		case strings.Contains(name, "no bucket") == strings.Contains(tt.err.Error(), "denied") && tt.want == storage.ErrDenied: //nolint:errorlint // the table's own
			t.Errorf("%s = %v: who is denied is said, and of what is missing that it is", name, tt.err)
		case strings.Contains(tt.err.Error(), "guessed"), len(tt.err.Error()) > 200:
			t.Errorf("%s = %v, which is not fit for a note", name, tt.err)
		}
	}
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
	if err := b.Create(t.Context()); err != nil {
		t.Errorf("Create of a bucket that is there = %v", err)
	}
}

// Half a file that looks like a whole one would be stored as one.
func TestGetOfABrokenConnectionDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	at := target(t, "get")
	content := noise(8 << 20)
	put(t, create(t, at), "key", content)
	proxy, at := proxied(t, at)
	b := open(t, at, storage.Options{})

	r := must.Get(b.Get(t.Context(), "key", storage.Range{Length: -1}))(t)
	defer r.Close()
	must.Get(io.CopyN(io.Discard, r, 1<<20))(t)
	proxy.Cut()
	n, err := io.Copy(io.Discard, r)
	if err == nil || isFinal(err) || errors.Is(err, io.EOF) {
		t.Errorf("%d more bytes, then %v; want a transient error", n, err)
	}

	proxy.Resume()
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("the next Get does not read the object")
	}
}

// proxied is the target behind a proxy that can break.
func proxied(t *testing.T, at storage.Target) (*injure.Proxy, storage.Target) {
	t.Helper()
	u := must.Get(url.Parse(at.Endpoint))(t)
	proxy := testenv.NewProxy(t, u.Host)
	at.Endpoint = u.Scheme + "://" + proxy.Addr()
	return proxy, at
}

// A transfer may take days, but a server that has died without saying so must
// not hold a worker for longer than the time of a stall.
func TestSilenceEndsARequest(t *testing.T) {
	t.Parallel()
	at := target(t, "get")
	content := noise(32 << 20)
	put(t, create(t, at), "key", content)
	proxy, at := proxied(t, at)
	b := open(t, at, storage.Options{Stall: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	r, err := b.Get(ctx, "key", storage.Range{Length: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	proxy.Delay(time.Hour)
	if _, err = io.Copy(io.Discard, r); err == nil || isFinal(err) {
		t.Errorf("reading = %v, want a transient error", err)
	}
	_, err = b.Put(ctx, "other", onlyReader{bytes.NewReader(content)}, describe(content))
	if err == nil || isFinal(err) {
		t.Errorf("Put = %v, want a transient error", err)
	}
	if ctx.Err() != nil {
		t.Error("it was not the stall that ended them")
	}
}

func TestReaderAtReadsAnywhere(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "get"))
	content := noise(100)
	etag := put(t, b, "key", content).ETag
	size := int64(len(content))
	r := b.ReaderAt(t.Context(), "key", size, etag)
	if err := iotest.TestReader(io.NewSectionReader(r, 0, size), content); err != nil {
		t.Error(err)
	}
	p := make([]byte, 100)
	if n, err := r.ReadAt(p, size-10); n != 10 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt over the end = %d, %v; want 10, EOF", n, err)
	}
	if n, err := r.ReadAt(p, size+10); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt behind the end = %d, %v; want 0, EOF", n, err)
	}
	put(t, b, "key", noise(99))
	if _, err := r.ReadAt(p, 0); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("ReadAt of a replaced object = %v, want ErrChanged", err)
	}
}

// 1,100 keys are two pages.
func TestListWalksAllPagesInOrder(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "list"))
	keys := []string{"12/a b+c%25&d=\"e\"", "12/päth/ファイル", "12/<x>", "123/other item"}
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("12/%04d", i))
	}
	must.Do(t, eachOf(keys, func(key string) error {
		_, err := b.Put(t.Context(), key, strings.NewReader(key), storage.Upload{Size: int64(len(key))})
		return err
	}))
	slices.Sort(keys)
	mine := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasPrefix(k, "12/") })

	if diff := cmp.Diff(keys, list(t, b, "", "")); diff != "" {
		t.Errorf("List of all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(mine, list(t, b, "12/", "")); diff != "" {
		t.Errorf("List of a prefix (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(mine[500:], list(t, b, "12/", mine[499])); diff != "" {
		t.Errorf("List after a key (-want +got):\n%s", diff)
	}
	for o, err := range b.List(t.Context(), "12/0007", "") {
		if err != nil || o.Size != 7 || o.ETag == "" || o.LastModified.IsZero() {
			t.Errorf("List = %+v, %v", o, err)
		}
	}
	for range b.List(t.Context(), "", "") {
		break // must not go on asking
	}

	must.Do(t, b.Delete(t.Context(), append(mine, "12/never there")...))
	if diff := cmp.Diff([]string{"123/other item"}, list(t, b, "", "")); diff != "" {
		t.Errorf("left after Delete (-want +got):\n%s", diff)
	}
	if err := b.Delete(t.Context(), "12/never there"); err != nil {
		t.Errorf("Delete of one missing key = %v", err)
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Errorf("Delete of nothing = %v", err)
	}
}

func list(t *testing.T, b *storage.Bucket, prefix, after string) []string {
	t.Helper()
	var keys []string
	for o, err := range b.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func TestListEndsWithItsError(t *testing.T) {
	t.Parallel()
	at := target(t, "list")
	at.Bucket += "-missing"
	b := open(t, at, storage.Options{})
	n := 0
	for _, err := range b.List(t.Context(), "", "") {
		n++
		if !errors.Is(err, storage.ErrDenied) {
			t.Errorf("List = %v, want ErrDenied", err)
		}
	}
	if n != 1 {
		t.Errorf("List yields %d times, want once", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range b.List(ctx, "", "") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("List = %v, want context.Canceled", err)
		}
	}
}
