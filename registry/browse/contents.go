package browse

import (
	"context"
	"fmt"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ChecksumFilter narrows a list of checksums. It needs File or Digest, which have indexes.
type ChecksumFilter struct {
	Institution string // identifier
	File        int64  // ID
	Digest      string // MD5 or SHA-256 in hexadecimal; with a file, any digest
	Algorithm   string // md5, sha1, sha256 or sha512

	ChecksumDetails
}

const checksumAdvice = "add file or digest (MD5 or SHA-256)"

// checksumsSQL reads rows of file_digests by file_digests_file, file_digests_md5 or
// file_digests_sha256, in the order of their files, and shows the digests of each.
const checksumsSQL = `
SELECT d.id + a.n AS id, d.generic_file_id AS file_id, f.identifier AS file, a.algorithm, encode(a.digest, 'hex') AS digest, d.datetime AS at, d.created_at,
	coalesce(d.updated_at, d.created_at) AS updated_at
FROM (SELECT * FROM file_digests d WHERE %s ORDER BY d.generic_file_id DESC) d
JOIN generic_files f ON f.id = d.generic_file_id
CROSS JOIN LATERAL (VALUES (0, 'md5', d.md5), (1, 'sha1', d.sha1), (2, 'sha256', d.sha256), (3, 'sha512', d.sha512)) AS a (n, algorithm, digest)
WHERE a.digest IS NOT NULL AND %s
ORDER BY d.generic_file_id DESC, d.id + a.n DESC LIMIT @n`

// Checksums lists digests of present and earlier contents, those of the newest files
// first. The key of a page is an ID of a checksum and of its file. The
// error is [ErrTooBroad] if neither file nor digest is set, or if it takes too long, and
// [registry.ErrRefused] for what is no digest.
func (r Records) Checksums(ctx context.Context, f ChecksumFilter, p Page) ([]record.ListedChecksum, Key, error) {
	return list(ctx, r, "checksums", f, p, func(found string) string { return found },
		func(c record.ListedChecksum) Key { return Key{ID: c.ID, Of: c.FileID} })
}

func (f ChecksumFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, checksumAdvice)
	q.parts = true
	var rows string
	switch {
	case f.File != 0:
		q.args["file"] = f.File
		rows = `d.generic_file_id = @file`
		q.equal(`a.digest = decode(@digest, 'hex')`, "digest", f.Digest)
		if strings.Trim(strings.ToLower(f.Digest), "0123456789abcdef") != "" || len(f.Digest)%2 != 0 {
			return nil, refused("%q is no digest in hexadecimal", f.Digest)
		}
	case f.Digest != "":
		digest, err := digestOf(q, f.Digest)
		if err != nil {
			return nil, err
		}
		rows = digest
		q.conds = append(q.conds, `a.digest = @digest`)
	case !q.nothing:
		return nil, q.tooBroad()
	}
	if after.ID != 0 {
		q.args["after"], q.args["of"] = after.ID, after.Of
		rows += ` AND d.generic_file_id <= @of`
		q.conds = append(q.conds, `(d.generic_file_id, d.id + a.n) < (@of, @after)`)
	}
	q.within(`f.institution_id`)
	q.equal(`a.algorithm = @algorithm`, "algorithm", f.Algorithm)
	f.narrow(q)
	q.sql = fmt.Sprintf(checksumsSQL, rows, q.all())
	return q, nil
}

// CopyFilter is the file whose copies are listed.
type CopyFilter struct {
	File int64 // ID
}

const copyAdvice = "add file"

// copiesSQL reads the copies of a file (storage_records_generic_file_id_url_key,
// fixity_failures_open).
const copiesSQL = `
SELECT s.id, s.target, s.bucket, s.key, s.url, s.etag, s.stored_at, s.verified_at, s.verified_by, s.last_fixity_at AS last_read_at,
	coalesce((SELECT b.problem FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open'), '') AS problem
FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
WHERE %s ORDER BY s.id DESC LIMIT @n`

// Copies lists the stored copies of a file, newest first. The key of a page is an ID. The
// error is [ErrTooBroad] if no file is set.
func (r Records) Copies(ctx context.Context, f CopyFilter, p Page) ([]record.ListedCopy, Key, error) {
	return list(ctx, r, "copies", f, p, func(found string) string { return found }, func(c record.ListedCopy) Key { return Key{ID: c.ID} })
}

func (f CopyFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, "", copyAdvice)
	if f.File == 0 && !q.nothing {
		return nil, q.tooBroad()
	}
	q.where(`s.generic_file_id = @file`, "file", f.File)
	q.within(`f.institution_id`)
	if after.ID != 0 {
		q.where(`s.id < @after`, "after", after.ID)
	}
	q.sql = fmt.Sprintf(copiesSQL, q.all())
	return q, nil
}
