package storage_test

import (
	"bytes"
	"crypto/md5"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// The ways a copy can take, and what each must come to: the same object. The
// gateway gives copied parts the checksum of their whole source if it has one.
func TestCopyKeepsWhatWasSaidOnEveryWay(t *testing.T) {
	t.Parallel()
	content := noise(2*minPart + 17)
	up := describe(content)
	up.ContentType = "application/x-identified"
	up.Metadata = map[string]string{"bagpath-encoded": "data%2Fa"}
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Copy-Source") == "" {
			return false
		}
		answer(w, http.StatusNotImplemented, "NotImplemented")
		return true
	}
	for name, tt := range map[string]struct {
		options   storage.Options
		intercept func(http.ResponseWriter, *http.Request) bool
		elsewhere bool // the source is reached at another endpoint
		class     string
		unsigned  bool // the server keeps no SHA-256 of the source
		within    bool // the content is a range of the source
		parts     bool // the checksum is a composite one
		one       bool // there is nothing said of parts
		onServer  bool // the bytes do not come through here
	}{
		"one request on the server":  {onServer: true, class: "STANDARD"},
		"into Glacier":               {onServer: true, class: "GLACIER"},
		"parts on the server":        {options: storage.Options{CopyAbove: minPart}, unsigned: true, onServer: true, parts: true, class: "STANDARD"},
		"parts into Glacier":         {options: storage.Options{CopyAbove: minPart}, unsigned: true, onServer: true, parts: true, class: "DEEP_ARCHIVE"},
		"server that miscounts":      {options: storage.Options{CopyAbove: minPart}, parts: true, class: "STANDARD"},
		"range on the server":        {within: true, unsigned: true, onServer: true, parts: true, class: "STANDARD"},
		"range into Glacier":         {within: true, unsigned: true, onServer: true, parts: true, class: "GLACIER"},
		"range, and it miscounts":    {within: true, parts: true, class: "STANDARD"},
		"small range on the server":  {within: true, one: true, unsigned: true, onServer: true, parts: true, class: "STANDARD"},
		"small range through here":   {within: true, one: true, elsewhere: true, class: "STANDARD"},
		"small range, it miscounts":  {within: true, one: true, parts: true, class: "STANDARD"},
		"range through here":         {within: true, elsewhere: true, parts: true, class: "STANDARD"},
		"range, no copies of parts":  {within: true, intercept: refuse, parts: true, class: "STANDARD"},
		"through here":               {elsewhere: true, class: "STANDARD"},
		"through here into Glacier":  {elsewhere: true, class: "GLACIER"},
		"server that does not copy":  {intercept: refuse, class: "STANDARD"},
		"server that copies no part": {intercept: refuse, options: storage.Options{CopyAbove: minPart}, parts: true, class: "STANDARD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := target(t, "from"), target(t, "to")
			src := create(t, from)
			all, source := content, storage.Source{Key: "12/a key+"}
			if tt.within {
				all = slices.Concat(noise(1000), content, noise(10))
				source.Range, source.Offset = true, 1000
			}
			plain := describe(all)
			if tt.unsigned {
				plain.SHA256 = [32]byte{}
			}
			uploaded, err := src.Put(t.Context(), source.Key, bytes.NewReader(all), plain)
			if err != nil {
				t.Fatal(err)
			}
			create(t, to)
			g := newGate(t, to, tt.intercept)
			if !tt.elsewhere {
				from = g.through(from)
			}
			to = g.through(to)
			if tt.class != "STANDARD" {
				to.StorageClass = tt.class
			}
			dst := open(t, to, tt.options)

			source.Bucket, source.IfMatch = open(t, from, storage.Options{}), uploaded.ETag
			parts := describeParts(content)
			if tt.one {
				parts = storage.Parts{}
			}
			if _, err = dst.Copy(t.Context(), source, "key", up, parts); err != nil {
				t.Fatal(err)
			}
			if tt.one {
				parts.SHA256 = [][32]byte{up.SHA256}
			}
			checksum := storage.ExpectedChecksum(up.SHA256, nil)
			if tt.parts {
				checksum = storage.ExpectedChecksum([32]byte{}, parts.SHA256)
			}
			want := storage.Object{
				Key: "key", Size: up.Size, ContentType: up.ContentType, Metadata: up.Metadata,
				StorageClass: tt.class, SHA256: checksum,
			}
			ignore := cmpopts.IgnoreFields(storage.Object{}, "LastModified", "VersionID", "ETag")
			if diff := cmp.Diff(want, head(t, dst, "key"), ignore); diff != "" {
				t.Errorf("Head (-want +got):\n%s", diff)
			}
			through := g.count(func(r *http.Request) bool { return r.Method == http.MethodPut && r.ContentLength > 0 })
			if tt.onServer != (through == 0) {
				t.Errorf("%d requests brought bytes, want them to stay on the server: %t", through, tt.onServer)
			}
			if tt.class == "STANDARD" {
				if got := get(t, dst, "key"); !bytes.Equal(got, content) {
					t.Error("the copy has other bytes")
				}
			}
		})
	}
}

func TestCopyOfOtherBytesDoesNotStay(t *testing.T) {
	t.Parallel()
	content := noise(minPart + 17)
	for name, tt := range map[string]struct {
		options   storage.Options
		elsewhere bool
	}{
		"on the server": {},
		"in parts":      {options: storage.Options{CopyAbove: minPart}},
		"through here":  {elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := target(t, "copy")
			put(t, create(t, at), "12/a", content)
			to := at
			if tt.elsewhere {
				to = newGate(t, at, nil).through(at)
			}
			dst := open(t, to, tt.options)
			src := storage.Source{Bucket: open(t, at, storage.Options{}), Key: "12/a"}
			up, parts := describe(content), describeParts(content)
			up.SHA256[0] ^= 1
			parts.SHA256[1][0] ^= 1
			if _, err := dst.Copy(t.Context(), src, "key", up, parts); !errors.Is(err, storage.ErrDigest) {
				t.Errorf("Copy = %v, want ErrDigest", err)
			}
			if _, err := dst.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Head = %v, want ErrNotFound", err)
			}
		})
	}
}

// A store may give the copy of an object that was uploaded in parts the checksum of those: it says
// nothing of the whole, and the copy stays.
func TestChecksumOfPartsIsNoneOfACopy(t *testing.T) {
	t.Parallel()
	content := noise(5000)
	at := target(t, "copy")
	b := create(t, at)
	put(t, b, "first", content)
	g := newGate(t, at, nil)
	g.rewrite(func(r *http.Request) bool { return r.Header.Get("X-Amz-Copy-Source") != "" }, func(body string) string {
		return strings.Replace(body, "</ChecksumSHA256>", "-2</ChecksumSHA256>", 1)
	})
	dst := open(t, g.through(at), storage.Options{})
	up := describe(content)
	up.Later = true
	o := must.Get(dst.Copy(t.Context(), storage.Source{Bucket: dst, Key: "first"}, "second", up, storage.Parts{}))(t)
	if o.SHA256 != "" || !bytes.Equal(get(t, b, "second"), content) {
		t.Errorf("SHA-256 %q, or other bytes", o.SHA256)
	}
}

// A server that keeps no checksums is held to the MD5 of each part, whichever way
// the part came, and a copy is read back if nothing of it can be compared.
func TestCopiedPartsAreComparedWithTheirDigests(t *testing.T) {
	t.Parallel()
	content := noise(2*minPart + 17)
	at := target(t, "copy")
	src := create(t, at)
	plain := describe(content)
	plain.SHA256 = [32]byte{}
	must.Get(src.Put(t.Context(), "tar", bytes.NewReader(content), plain))(t)
	right := describeParts(content)
	for part := range slices.Chunk(content, minPart) {
		right.MD5 = append(right.MD5, md5.Sum(part))
	}
	unknown, wrong := right, right
	unknown.MD5 = nil
	wrong.MD5 = slices.Clone(right.MD5)
	wrong.MD5[1][0] ^= 1
	for name, tt := range map[string]struct {
		mode  storage.ChecksumMode
		parts storage.Parts
		back  int // times that the copy is read back
		err   error
	}{
		"checksums":          {storage.ChecksumSHA256, right, 0, nil},
		"no checksums":       {storage.ChecksumETag, right, 0, nil},
		"nothing to compare": {storage.ChecksumETag, unknown, 1, nil},
		"a wrong part":       {storage.ChecksumETag, wrong, 0, storage.ErrDigest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, at, nil)
			from, to := g.through(at), g.through(at)
			to.Checksum = tt.mode
			dst := open(t, to, storage.Options{Concurrency: 1})
			key := "copy of " + name
			_, err := dst.Copy(t.Context(), storage.Source{Bucket: open(t, from, storage.Options{}), Key: "tar", Range: true},
				key, describe(content), tt.parts)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Copy = %v, want %v", err, tt.err)
			}
			if tt.err == nil && !bytes.Equal(get(t, src, key), content) {
				t.Error("the copy has other bytes")
			}
			if _, err := src.Head(t.Context(), key); (err == nil) != (tt.err == nil) {
				t.Errorf("Head = %v", err)
			}
			through := g.count(func(r *http.Request) bool { return r.Method == http.MethodPut && r.ContentLength > 0 })
			back := g.count(func(r *http.Request) bool { return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, key) })
			if tt.err == nil && (through != 0 || back != tt.back) {
				t.Errorf("%d parts came through here, want none; the copy was read back %d times, want %d", through, back, tt.back)
			}
		})
	}
}

func TestCopySaysWhyItCannotBeMade(t *testing.T) {
	t.Parallel()
	content := noise(minPart + 17)
	at := target(t, "copy")
	cold := at
	cold.StorageClass = "GLACIER"
	b := create(t, at)
	unsigned := describe(content)
	unsigned.SHA256 = [32]byte{} // so that the gateway copies parts
	must.Get(b.Put(t.Context(), "key", bytes.NewReader(content), unsigned))(t)
	put(t, open(t, cold, storage.Options{}), "cold", content)
	elsewhere := open(t, newGate(t, at, nil).through(at), storage.Options{})
	inParts := open(t, at, storage.Options{CopyAbove: minPart})
	missing := at
	missing.Bucket += "-missing"
	nowhere := open(t, missing, storage.Options{})
	stranger, forger := at, at
	stranger.AccessKeyID = "nobody"
	forger.SecretAccessKey = "guessed"

	for name, tt := range map[string]struct {
		src  storage.Source
		want error
	}{
		"no such key":       {storage.Source{Bucket: b, Key: "nothing"}, storage.ErrNotFound},
		"replaced":          {storage.Source{Bucket: b, Key: "key", IfMatch: "0123"}, storage.ErrChanged},
		"archived":          {storage.Source{Bucket: b, Key: "cold"}, storage.ErrArchived},
		"stranger's source": {storage.Source{Bucket: open(t, stranger, storage.Options{}), Key: "key"}, storage.ErrDenied},
		"forger's source":   {storage.Source{Bucket: open(t, forger, storage.Options{}), Key: "key"}, storage.ErrDenied},
		"no such bucket":    {storage.Source{Bucket: nowhere, Key: "key"}, storage.ErrDenied},
	} {
		for way, dst := range map[string]*storage.Bucket{"at once": b, "parts": inParts, "through here": elsewhere} {
			if _, err := dst.Copy(t.Context(), tt.src, "new", describe(content), describeParts(content)); !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: Copy = %v, want %v", name, way, err, tt.want)
			}
		}
	}
}
