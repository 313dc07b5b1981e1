package copies

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/storage"
)

// A copy is held against everything that its provider says of it.
func TestCompareCopy(t *testing.T) {
	t.Parallel()
	bytes := []byte("content")
	f := &Content{Size: 7, SHA256: sha256.Sum256(bytes), MD5: md5.Sum(bytes)}
	sums, sumsMD5 := [][32]byte{sha256.Sum256(bytes[:5]), sha256.Sum256(bytes[5:])}, [][16]byte{md5.Sum(bytes[:5]), md5.Sum(bytes[5:])}
	md5s := &Content{Size: 7, SHA256: f.SHA256, MD5: f.MD5, Parts: &bag.PartDigests{SHA256: sums, MD5: sumsMD5}}
	inParts := &Content{Size: 7, SHA256: f.SHA256, MD5: f.MD5, Parts: &bag.PartDigests{SHA256: sums}}
	want := storage.Upload{Size: 7, ContentType: "text/plain", Metadata: map[string]string{"bag": "b"}}
	// The checksums are those that S3 documents: base64 of the digest, and of the
	// digest of the parts' digests with their number.
	sum := base64.StdEncoding.EncodeToString(f.SHA256[:])
	both := sha256.Sum256(append(sums[0][:], sums[1][:]...))
	eachMD5 := md5.Sum(append(sumsMD5[0][:], sumsMD5[1][:]...))
	composite := base64.StdEncoding.EncodeToString(both[:]) + "-2"
	one, singleMD5 := sha256.Sum256(f.SHA256[:]), md5.Sum(f.MD5[:])
	single := base64.StdEncoding.EncodeToString(one[:]) + "-1"
	good := storage.Object{Size: 7, SHA256: sum, ETag: "e", ContentType: "text/plain", Metadata: map[string]string{"bag": "b", "more": "x"}}
	for name, tc := range map[string]struct {
		f      *Content
		change func(*storage.Object)
		wrong  string
	}{
		"good":                         {f, func(*storage.Object) {}, ""},
		"good by ETag":                 {f, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(f.MD5[:]) }, ""},
		"good in parts":                {inParts, func(o *storage.Object) { o.SHA256 = composite }, ""},
		"good as a single part":        {f, func(o *storage.Object) { o.SHA256 = single }, ""},
		"a single part by its MD5":     {f, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(singleMD5[:])+"-1" }, ""},
		"parts are no single part":     {inParts, func(o *storage.Object) { o.SHA256 = single }, "SHA-256"},
		"parts copied whole":           {inParts, func(*storage.Object) {}, ""},
		"parts of unknown MD5":         {inParts, func(o *storage.Object) { o.SHA256 = "" }, "keeps no SHA-256"},
		"parts by their MD5":           {md5s, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(eachMD5[:])+"-2" }, ""},
		"parts by the MD5 of all":      {md5s, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(f.MD5[:]) }, ""},
		"other parts by their MD5":     {md5s, func(o *storage.Object) { o.SHA256 = "" }, "MD5 of its parts"},
		"size alone, of parts":         {inParts, func(o *storage.Object) { o.SHA256, o.Size = "", 8 }, "8 bytes"},
		"composite of a file in one":   {f, func(o *storage.Object) { o.SHA256 = composite }, "SHA-256"},
		"another checksum":             {f, func(o *storage.Object) { o.SHA256 = "x" + sum[1:] }, "SHA-256"},
		"another ETag and no checksum": {f, func(o *storage.Object) { o.SHA256 = "" }, "ETag"},
		"another content type":         {f, func(o *storage.Object) { o.ContentType = "text/html" }, "text/html"},
		"metadata missing":             {f, func(o *storage.Object) { o.Metadata = nil }, "metadata bag"},
	} {
		o := good
		tc.change(&o)
		err := Compare(o, want, tc.f)
		if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%s: %v, want %q", name, err, tc.wrong)
		}
	}
}

// Names go into headers as they are only where every provider carries them
// unharmed.
func TestNamesInMetadata(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 400)
	for name, tc := range map[string]struct {
		path   string
		encode bool
		want   map[string]string
	}{
		"plain":              {"data/a b.txt", false, map[string]string{"bagpath": "data/a b.txt"}},
		"plain for Wasabi":   {"data/a b.txt", true, map[string]string{"bagpath-encoded": "data%2Fa+b.txt"}},
		"two spaces":         {"data/a  b", false, map[string]string{"bagpath-encoded": "data%2Fa++b"}},
		"space at the end":   {"data/a ", false, map[string]string{"bagpath-encoded": "data%2Fa+"}},
		"accents":            {"data/é", false, map[string]string{"bagpath-encoded": "data%2F%C3%A9"}},
		"narrow space":       {"a\u202fb", false, map[string]string{"bagpath-encoded": "a%E2%80%AFb"}},
		"line separator":     {"a\u2028b", false, map[string]string{"bagpath-encoded": "a%E2%80%A8b"}},
		"control character":  {"a\x07b", false, map[string]string{"bagpath-encoded": "a%07b"}},
		"too long for S3":    {long, false, map[string]string{"bagpath-encoded-beginning": strings.Repeat("%C3%A9", 233)}},
		"long but not too":   {strings.Repeat("a", 1024), false, map[string]string{"bagpath": strings.Repeat("a", 1024)}},
		"nothing to be said": {"", false, map[string]string{"bagpath-encoded": ""}},
	} {
		got := map[string]string{}
		describe(got, "bagpath", tc.path, tc.encode)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for key, value := range got {
			if _, err := url.QueryUnescape(value); strings.HasSuffix(key, "encoded") && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
