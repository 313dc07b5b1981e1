package copies

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/storage"
)

// Content is what the copies of a file must be: its bytes, by their digests, and its name.
type Content struct {
	Path   string
	Size   int64
	MD5    [16]byte
	SHA256 [32]byte
	Parts  *bag.PartDigests // nil if it does not go in parts; the MD5 are there if a bucket keeps no SHA-256
}

// UploadOf describes a file to a bucket: its digests, so that the bytes are checked on their
// way, and metadata for people who find a copy without a registry.
func UploadOf(institution, object string, f *Content, contentType string, encodePath bool) storage.Upload {
	metadata := map[string]string{
		"institution": institution,
		"md5":         hex.EncodeToString(f.MD5[:]),
		"sha256":      hex.EncodeToString(f.SHA256[:]),
	}
	describe(metadata, "bag", object, false)
	describe(metadata, "bagpath", f.Path, encodePath)
	return storage.Upload{Size: f.Size, SHA256: f.SHA256, MD5: f.MD5, ContentType: contentType, Metadata: metadata, Later: true} // see Compare
}

// describe adds a name to metadata as it is, or query-escaped under another key
// where headers would not carry it unharmed: they take printable ASCII, and some
// providers reject two spaces in a row. S3 allows 2 KB of metadata in all, so
// of a name too long for that only the beginning is kept, under a third key.
func describe(metadata map[string]string, key, name string, encode bool) {
	const most = 1400
	plain := name != "" && name == strings.TrimSpace(name) && !strings.Contains(name, "  ")
	for _, c := range []byte(name) {
		plain = plain && c >= ' ' && c <= '~'
	}
	if plain && !encode {
		metadata[key] = name
		return
	}
	escaped := url.QueryEscape(name)
	if len(escaped) <= most {
		metadata[key+"-encoded"] = escaped
		return
	}
	cut := escaped[:most]
	if i := strings.LastIndexByte(cut, '%'); i > most-3 {
		cut = cut[:i]
	}
	metadata[key+"-encoded-beginning"] = cut
}

// EncodesPath tells whether copies at a target always carry their path encoded.
func EncodesPath(target string) bool { return strings.HasPrefix(target, "Wasabi") }

// ErrUnproven says that nothing the provider says of a copy proves its bytes: only reading them can.
var ErrUnproven = errors.New("not proved by what its provider says")

// Compare compares a copy with what it should be. If the provider keeps no checksum, the ETag
// counts: the MD5 of the content or, of a copy that was made in parts, that of their MD5s. Some
// providers have other ETags: then the error is [ErrUnproven] as well. Of want, an empty content
// type and metadata that are not there stand for any.
func Compare(object storage.Object, want storage.Upload, f *Content) error {
	if object.Size != want.Size {
		return Wrong("it has %d bytes, expected %d", object.Size, want.Size)
	}
	parts := f.Parts
	if parts == nil { // what a server copied out of a tar is of a single part
		parts = &bag.PartDigests{SHA256: [][32]byte{f.SHA256}, MD5: [][16]byte{f.MD5}}
	}
	var unproven error
	whole := storage.ExpectedChecksum(f.SHA256, nil)
	switch {
	case object.SHA256 != "":
		if object.SHA256 != whole && object.SHA256 != storage.ExpectedChecksum(f.SHA256, parts.SHA256) {
			return Wrong("its SHA-256 is %s, expected %s", object.SHA256, whole)
		}
	case object.ETag == storage.ExpectedETag(f.MD5, nil):
	case len(parts.MD5) == 0:
		unproven = Wrong("its provider keeps no SHA-256, and the MD5 of its parts is not known")
	case object.ETag == storage.ExpectedETag(f.MD5, parts.MD5):
	case f.Parts == nil:
		unproven = Wrong("its ETag is %s, expected the MD5 %s", object.ETag, hex.EncodeToString(f.MD5[:]))
	default:
		unproven = Wrong("its ETag is %s, expected the MD5 of its parts, %s", object.ETag, storage.ExpectedETag(f.MD5, parts.MD5))
	}
	if want.ContentType != "" && object.ContentType != want.ContentType {
		return ofKind(errDescription, Wrong("its content type is %q, expected %q", object.ContentType, want.ContentType))
	}
	if err := compareMetadata(object, want); err != nil {
		return ofKind(errDescription, err)
	}
	return ofKind(ErrUnproven, unproven)
}

func ofKind(kind, err error) error {
	if m, ok := errors.AsType[*cause.Mismatch](err); ok {
		m.Kind = kind
	}
	return err
}

// compareMetadata takes the beginning of a value for the value: some stores hold no more.
func compareMetadata(object storage.Object, want storage.Upload) error {
	for key, value := range want.Metadata {
		shortKey, short := storage.Beginning(key, value)
		if object.Metadata[key] != value && (short == value || object.Metadata[shortKey] != short) {
			return Wrong("its metadata %s is %q, expected %q", key, object.Metadata[key], value)
		}
	}
	return nil
}

// Wrong says that a copy is not what it should be. Asking again may find it
// right, since some providers show what they hold late.
//
// The last two arguments are what was found and what should be, if there are two.
func Wrong(format string, args ...any) error {
	m := &cause.Mismatch{Text: fmt.Sprintf(format, args...)}
	if n := len(args); n >= 2 {
		m.Found, m.Expected = fmt.Sprintf("%v", args[n-2]), fmt.Sprintf("%v", args[n-1])
	}
	return claim.Transient("bad-copy", m)
}

// ObjectOf reads from the metadata of a copy which object it was made for, as
// describe wrote it; "" if that is unknown.
func ObjectOf(o storage.Object) string {
	if object := o.Metadata["bag"]; object != "" {
		return object
	}
	object, err := url.QueryUnescape(o.Metadata["bag-encoded"])
	if err != nil {
		return ""
	}
	return object
}
