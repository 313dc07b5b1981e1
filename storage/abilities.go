package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/storage/ability"
)

// Can tells whether the bucket's store goes a way, as far as is known; known is false
// before that was seen. A [ChecksumMode] that was set decides for it.
func (b *Bucket) Can(w ability.Way) (can, known bool) {
	if m := b.conn.Target.Checksum; !m.Measured() && slices.Contains([]ability.Way{ability.SHA256, ability.PartSHA256, ability.CopiedSHA256, ability.Trailers}, w) {
		return m == ChecksumSHA256, true
	}
	switch {
	case w == ability.ETagMD5 && b.ownETags():
		return false, true
	case w == ability.ETagMD5 && b.conn.Target.Checksum == ChecksumETag:
		return true, true
	}
	return b.store.Can(w)
}

// can is [Bucket.Can] for a caller that takes what is not known for given.
func (b *Bucket) can(w ability.Way) bool {
	can, _ := b.Can(w)
	return can
}

// Lacks tells whether the bucket's store is known not to go a way.
func (b *Bucket) Lacks(w ability.Way) bool { return !b.can(w) }

// ownETags reports whether objects are encrypted with a key of KMS: their ETags are no MD5s, whatever
// other buckets of the store have.
func (b *Bucket) ownETags() bool { return strings.HasPrefix(b.conn.Target.Encryption, "aws:kms") }

// learn notes what was seen of a way: why is nil if the store goes it.
func (b *Bucket) learn(w ability.Way, why error) {
	if w == ability.ETagMD5 && b.ownETags() {
		return
	}
	if why == nil {
		b.store.Learn(w, true, "")
		return
	}
	b.store.Learn(w, false, inShort(why))
}

// learnKept notes whether the answer to something that was sent with a SHA-256 has one.
func (b *Bucket) learnKept(w ability.Way, checksum string) {
	var why error
	if checksum == "" {
		why = errors.New("no checksum in its answers")
	}
	b.learn(w, why)
}

// Described compares how an object is described with how it was written, and learns whether its
// store keeps that. The object must have been written a moment before, and by nobody else.
func (b *Bucket) Described(o Object, up Upload) {
	var changed, lost error
	if o.ContentType != up.ContentType {
		changed = fmt.Errorf("content type %q, written was %q", o.ContentType, up.ContentType)
	}
	b.learn(ability.MediaType, changed)
	if len(up.Metadata) == 0 {
		return // which tells nothing
	}
	if len(o.Metadata) == 0 {
		lost = errors.New("no metadata in its answers")
	}
	b.learn(ability.Metadata, lost)
}

// inShort is an error in a line.
func inShort(err error) string {
	const most = 200
	text := strings.Join(strings.Fields(Redact(err.Error())), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
