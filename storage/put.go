package storage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// Put writes an object in a single request, of at most 5 GiB, from body as it
// comes; see [PartSize]. It reads up.Size bytes and does not touch body after it
// has returned. If they are not those of up.SHA256, the error is [ErrDigest] and
// nothing is written: the last bytes are held back until the digest is right.
// A body of more than 64 KiB is sent only once; to try again, open it again.
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, up Upload) (Object, error) {
	o, err := b.put(ctx, key, body, up)
	if err != nil {
		return Object{}, b.conn.Wrap("put", key, err)
	}
	return o, nil
}

// Beginning is how a value of metadata is kept by a server that takes only short ones: under
// another name, the first 256 bytes or less, and no half of an escaped byte.
func Beginning(name, value string) (shortName, short string) {
	const most = 256
	short = value
	if len(value) > most {
		short = value[:most]
		if i := strings.LastIndexByte(short, '%'); i > most-3 {
			short = short[:i]
		}
		short = strings.TrimRight(short, " ")
	}
	return strings.TrimSuffix(name, beginning) + beginning, short
}

const beginning = "-beginning"

// shortened has no long values, and says whether it had to cut one.
func (up Upload) shortened() (Upload, bool) {
	var short map[string]string
	for name, value := range up.Metadata {
		if len(value) <= 256 {
			continue
		}
		if short == nil {
			short = maps.Clone(up.Metadata)
		}
		delete(short, name)
		name, value = Beginning(name, value)
		short[name] = value
	}
	if short != nil {
		up.Metadata = short
	}
	return up, short != nil
}

// fits cuts what is known to be too long for the server.
func (b *Bucket) fits(up Upload) Upload {
	if !b.can(ability.LongMetadata) {
		up, _ = up.shortened()
	}
	return up
}

// tooLong reports whether an error may come of long metadata: some servers fail internally.
func tooLong(err error) bool {
	code, _ := wire.Words(err)
	return wire.OtherWay(err) || code == "InternalError"
}

// put takes the way that the server is known to go. If it refuses that, put opens the content
// once more and tries the others; what goes well is remembered.
func (b *Bucket) put(ctx context.Context, key string, content io.Reader, up Upload) (Object, error) {
	return b.putFrom(ctx, key, up, wire.Again(content, up.Size))
}

func (b *Bucket) putFrom(ctx context.Context, key string, up Upload, open func() (io.Reader, error)) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, err
	}
	up, sum := b.fits(up), b.can(ability.SHA256) && known(up.SHA256[:])
	o, err := b.putOnce(ctx, key, up, sum, open)
	if err == nil {
		if _, long := up.shortened(); long {
			b.learn(ability.LongMetadata, nil)
		}
		return o, nil
	}
	refusal := err
	err = b.around(ability.SHA256, up, sum, refusal, func(up Upload, sum bool) error {
		made, err := b.putOnce(ctx, key, up, sum, open)
		switch {
		case err == nil:
			o = made
		case errors.Is(err, wire.ErrReadOnce):
			return refusal
		}
		return err
	})
	return o, err
}

// around asks for what a server has refused in the other ways that there are: without a SHA-256,
// with short metadata, with both. It remembers what went well. If nothing does, the error is the
// first that is about more than the way: what was to be read may be gone as well.
func (b *Bucket) around(checksum ability.Way, up Upload, sum bool, refusal error, ask func(up Upload, sum bool) error) error {
	short, cut := up.shortened()
	bare, cut := sum && wire.OtherWay(refusal) && b.conn.Target.Checksum.Measured(), cut && tooLong(refusal)
	for _, other := range []struct {
		open  bool
		up    Upload
		sum   bool
		lacks []ability.Way
	}{
		{bare, up, false, []ability.Way{checksum}},
		{cut, short, sum, []ability.Way{ability.LongMetadata}},
		{bare && cut, short, false, []ability.Way{checksum, ability.LongMetadata}},
	} {
		if !other.open {
			continue
		}
		err := ask(other.up, other.sum)
		if err != nil && !tooLong(err) {
			return err
		}
		if err == nil && !wire.OtherWay(refusal) && ask(up, sum) == nil {
			return nil // it had failed for another reason, and takes the whole
		}
		if err == nil {
			for _, way := range other.lacks {
				b.learn(way, refusal)
			}
			return nil
		}
	}
	return refusal
}

// putOnce sends one request, with or without a SHA-256, and proves what became of it.
func (b *Bucket) putOnce(ctx context.Context, key string, up Upload, sum bool, open func() (io.Reader, error)) (Object, error) {
	content, err := open()
	if err != nil {
		return Object{}, err
	}
	body := wire.NewBody(content, up.Size, up.SHA256, b.can(ability.ETagMD5) && (!b.can(ability.SHA256) || !sum && known(up.SHA256[:])))
	r := wire.NewRequest("PutObject", http.MethodPut, key)
	b.describe(r, up)
	if up.ContentType == "" {
		r.Set("Content-Type", "application/octet-stream") // as S3 would take it to be
	}
	switch {
	case sum:
		r.Set("X-Amz-Checksum-Sha256", ExpectedChecksum(up.SHA256, nil))
	case body.MD5 != nil && known(up.MD5[:]):
		r.Set("Content-Md5", base64.StdEncoding.EncodeToString(up.MD5[:]))
	}
	if err := b.conn.Carry(r, body); err != nil {
		return Object{}, err
	}
	out, err := b.conn.Send(ctx, r)
	if err != nil {
		return Object{}, b.conn.Unsent(ctx, body, err)
	}
	o, err := b.kept(ctx, key, up, out.Header, out.ETag(), out.Header.Get("X-Amz-Checksum-Sha256"))
	if err != nil {
		return Object{}, err
	}
	err = b.proven(ctx, body, &o, up, sum)
	if errors.Is(err, ErrDigest) || body.Left > 0 {
		return Object{}, b.discard(ctx, key, err)
	}
	return o, err
}

// kept is an object that a server has written, which does not always say its ETag. If it was to be
// encrypted and was not, it is deleted.
func (b *Bucket) kept(ctx context.Context, key string, up Upload, said http.Header, etag, checksum string) (Object, error) {
	if err := b.encrypted(said.Get(encryptionHeader)); err != nil {
		return Object{}, b.discard(ctx, key, err)
	}
	if etag == "" {
		return b.lookedAt(ctx, key, up.Size)
	}
	return b.written(key, up, etag, checksum, said.Get("X-Amz-Version-Id")), nil
}

// written is an object with what a server has said that it keeps of it.
func (b *Bucket) written(key string, up Upload, etag, checksum, version string) Object {
	return Object{
		Key: key, Size: up.Size, ETag: etag, SHA256: checksum, ContentType: up.ContentType, Metadata: up.Metadata,
		StorageClass: b.Class(), VersionID: version,
	}
}

// proven holds what the server has against what was sent to it: by its checksum, by its ETag,
// or by reading it.
func (b *Bucket) proven(ctx context.Context, sent *wire.Body, o *Object, up Upload, sum bool) error {
	proved, err := b.compare(sent, o.ETag, o.SHA256)
	if err != nil {
		return err
	}
	switch {
	case !sum:
	case o.SHA256 != "":
		b.learn(ability.SHA256, nil)
		b.learnETag(up.MD5, o.ETag)
	default:
		if o.SHA256, err = b.keptSHA256(ctx, o.Key); err != nil {
			return err
		}
		proved = o.SHA256 == ExpectedChecksum(up.SHA256, nil) || known(up.MD5[:]) && o.ETag == ExpectedETag(up.MD5, nil)
	}
	if proved || up.Later || !known(up.SHA256[:]) && sent.MD5 == nil {
		return nil
	}
	if err := b.readBack(ctx, o.Key, Range{Length: -1}, sent.Sum()); err != nil {
		return err
	}
	if sent.MD5 != nil {
		b.learn(ability.ETagMD5, fmt.Errorf("ETag %s of an object with another MD5", o.ETag))
	}
	return nil
}

// keptSHA256 asks a store that has not said so at once whether it keeps the SHA-256 of an object;
// "" without asking, if that is known.
func (b *Bucket) keptSHA256(ctx context.Context, key string) (string, error) {
	if _, seen := b.Can(ability.SHA256); seen {
		return "", nil
	}
	got, err := b.head(ctx, key, "", 0)
	if err != nil {
		return "", b.conn.Explain(ctx, err)
	}
	sum := got.Header.Get("X-Amz-Checksum-Sha256")
	b.learnKept(ability.SHA256, sum)
	return sum, nil
}

// learnETag compares an ETag with the MD5 of an object that the server has, as its checksum proves.
func (b *Bucket) learnETag(sum [16]byte, etag string) {
	switch {
	case !known(sum[:]):
	case etag == ExpectedETag(sum, nil):
		b.learn(ability.ETagMD5, nil)
	default:
		b.learn(ability.ETagMD5, fmt.Errorf("ETag %s of an object with the MD5 %x", etag, sum))
	}
}

// describe adds what an object is to be, in the headers of a PUT or a copy.
func (b *Bucket) describe(r *wire.Request, up Upload) {
	r.Set("Content-Type", up.ContentType)
	r.Set("X-Amz-Storage-Class", b.conn.Target.StorageClass)
	r.Set(encryptionHeader, b.conn.Target.Encryption)
	r.Set(encryptionHeader+"-Aws-Kms-Key-Id", b.conn.Target.KMSKey)
	r.SetMetadata(up.Metadata)
}

const encryptionHeader = "X-Amz-Server-Side-Encryption"

// encrypted fails if the server has not encrypted what was sent as it was asked to: there are stores
// that ignore the header.
func (b *Bucket) encrypted(by string) error {
	if want := b.conn.Target.Encryption; want != "" && by != want {
		return b.conn.Wrong(fmt.Errorf("the server was asked for encryption by %s, and says that it encrypted by %q", want, by))
	}
	return nil
}

// readBack reads a range of an object and hashes it, since its server proves nothing. An object in
// an archive cannot be read, and stays unproven.
func (b *Bucket) readBack(ctx context.Context, key string, r Range, want [sha256.Size]byte) error {
	body, _, err := b.get(ctx, key, r, false)
	if errors.Is(err, ErrArchived) {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // it is read to its end
	h := sha256.New()
	n, err := io.Copy(h, body)
	b.store.ReadBack(n)
	if err != nil {
		return err
	}
	if got := [sha256.Size]byte(h.Sum(nil)); got != want {
		return b.conn.Lied("%d bytes with SHA-256 %x were read back at %d, sent were others, with %x", n, got, r.Offset, want)
	}
	return nil
}

// discard deletes what must not be taken for an object, and returns why. If we
// die here, it stays until the key is written again: a caller that has not seen
// Put succeed does not rely on it.
func (b *Bucket) discard(ctx context.Context, key string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	return errors.Join(why, b.Delete(ctx, key))
}

// check refuses what a header cannot carry, before anything is sent.
func (up Upload) check() error {
	if up.Size < 0 {
		return fmt.Errorf("size %d is negative", up.Size)
	}
	if !wire.Plain(up.ContentType) {
		return fmt.Errorf("content type %q is not plain ASCII", up.ContentType)
	}
	for name, value := range up.Metadata {
		if name == "" || name != strings.ToLower(name) || !wire.Plain(name) || strings.ContainsAny(name, " :") {
			return fmt.Errorf("metadata name %q is not usable in a header", name)
		}
		if !wire.Plain(value) {
			return fmt.Errorf("metadata %s=%q is not plain ASCII without space at its ends: encode it", name, value)
		}
	}
	return nil
}

// compare holds what the server says that it has against what was sent to it, and tells
// whether that proves it.
func (b *Bucket) compare(sent *wire.Body, etag, checksum string) (proved bool, err error) {
	if sent.Left > 0 {
		return false, b.conn.Wrong(fmt.Errorf("%w: the server answered %d bytes before the end", io.ErrUnexpectedEOF, sent.Left))
	}
	if checksum != "" {
		if sum := ExpectedChecksum(sent.Sum(), nil); checksum != sum {
			return false, b.conn.Lied("the server has SHA-256 %s, sent was %s", checksum, sum)
		}
		return true, nil
	}
	if sent.MD5 == nil {
		return false, nil
	}
	want := hex.EncodeToString(sent.MD5.Sum(nil))
	switch {
	case etag == want:
		b.learn(ability.ETagMD5, nil)
		return true, nil
	case b.conn.Target.Checksum == ChecksumETag: // else it may be no MD5 here, and reading the object tells
		return false, b.conn.Lied("ETag is %s, MD5 of the bytes sent is %s", etag, want)
	}
	return false, nil
}
