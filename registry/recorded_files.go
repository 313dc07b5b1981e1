package registry

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// smallBag is the number of files up to which a recording hands its files over as a
// parameter of each statement. A temporary table costs the database more than they do.
const smallBag = 100

// recordedFiles are the files of a recording, as its statements see them.
type recordedFiles struct {
	tx    pgx.Tx
	count int
	small []map[string]any // the rows of a small bag, by column; nil: they are in the temporary table
}

// takeFiles counts what files say, and hands them to the transaction.
func takeFiles(ctx context.Context, tx pgx.Tx, files iter.Seq2[FileRecord, error], said *texts) (recordedFiles, error) {
	next, stop := iter.Pull2(files)
	defer stop()
	names := columnNames()
	var first [][]any
	more := false
	for f, err, ok := next(); ok; f, err, ok = next() {
		if err != nil {
			return recordedFiles{}, fmt.Errorf("copy the files: %w", err)
		}
		row, err := f.row(said)
		if err != nil {
			return recordedFiles{}, err
		}
		first = append(first, row)
		if len(first) > smallBag {
			more = true
			break
		}
	}
	if small, ok := jsonRows(names, first); ok && !more {
		return recordedFiles{tx: tx, count: len(first), small: small}, nil
	}
	count, err := copyFiles(ctx, tx, names, func() ([]any, error) {
		if len(first) > 0 {
			row := first[0]
			first = first[1:]
			return row, nil
		}
		f, err, ok := next()
		if !ok || err != nil {
			return nil, err
		}
		return f.row(said)
	})
	return recordedFiles{tx: tx, count: count}, err
}

// columnNames are the columns of the relation that row fills.
func columnNames() []string {
	var names []string
	for line := range strings.Lines(statement("columns")) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// copyFiles streams the files into the temporary table by COPY.
func copyFiles(ctx context.Context, tx pgx.Tx, names []string, next func() ([]any, error)) (int, error) {
	for _, sql := range []string{"CREATE TEMPORARY TABLE copied (\n" + statement("columns") + ") ON COMMIT DROP", statement("table")} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return 0, fmt.Errorf("create the temporary tables of the files: %w", err)
		}
	}
	var fileErr error // the server's answer to a COPY that we break off has only its text
	n, err := tx.CopyFrom(ctx, pgx.Identifier{"copied"}, names, pgx.CopyFromFunc(func() ([]any, error) {
		var row []any
		row, fileErr = next()
		return row, fileErr
	}))
	if fileErr != nil {
		return 0, fmt.Errorf("copy the files: %w", fileErr)
	}
	if err != nil {
		return 0, fmt.Errorf("copy the files: %w", err)
	}
	if _, err := tx.Exec(ctx, `ANALYZE copied (identifier, kind)`); err != nil {
		return 0, fmt.Errorf("count the files: %w", err)
	}
	return int(n), nil
}

// jsonRows are rows as JSON has them, or false if one has a value that JSON and PostgreSQL
// do not write alike: COPY takes it as it is, or says what is wrong with it.
func jsonRows(names []string, rows [][]any) ([]map[string]any, bool) {
	list := make([]map[string]any, 0, len(rows))
	for _, row := range rows {
		one := make(map[string]any, len(names)+2)
		for i, v := range row {
			v, ok := jsonValue(v)
			if !ok {
				return nil, false
			}
			one[names[i]] = v
		}
		list = append(list, one)
	}
	return list, true
}

func jsonValue(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return v, utf8.ValidString(v)
	case []string:
		for _, s := range v {
			if !utf8.ValidString(s) {
				return nil, false
			}
		}
	case []byte:
		return `\x` + hex.EncodeToString(v), true
	case [][]byte:
		list := make([]string, len(v))
		for i, b := range v {
			list[i] = `\x` + hex.EncodeToString(b)
		}
		return list, true
	case time.Time:
		return jsonTime(v)
	case *time.Time:
		if v == nil {
			return nil, true
		}
		return jsonTime(*v)
	case []time.Time:
		list := make([]any, len(v))
		for i, t := range v {
			text, ok := jsonTime(t)
			if !ok {
				return nil, false
			}
			list[i] = text
		}
		return list, true
	}
	return v, true
}

// jsonTime cuts what is behind the microseconds, as COPY does.
func jsonTime(t time.Time) (any, bool) {
	t = t.UTC()
	return t.Format("2006-01-02T15:04:05.000000Z07:00"), t.Year() >= 1 && t.Year() <= 9999
}

// run executes a statement over the files. Of several names the first is of the relations that
// the second reads, and the third of what ends that.
func (r recordedFiles) run(ctx context.Context, args pgx.NamedArgs, names ...string) error {
	sql, err := r.sql(args, names...)
	if err == nil {
		_, err = r.tx.Exec(ctx, sql, args)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", names[min(1, len(names)-1)], Refusal(err))
	}
	return nil
}

func (r recordedFiles) sql(args pgx.NamedArgs, names ...string) (string, error) {
	var parts []string
	if r.small != nil {
		files, err := json.Marshal(r.small)
		if err != nil {
			return "", err
		}
		args["files"] = string(files)
		parts = append(parts, "recording AS MATERIALIZED (SELECT * FROM json_to_recordset(@files::json) AS r (id bigint, is_new boolean,\n"+statement("columns")+"))")
	} else if names[0] == "files" {
		parts = append(parts, "recording AS NOT MATERIALIZED (SELECT * FROM copied)")
	} else {
		parts = append(parts, "recording AS NOT MATERIALIZED (SELECT * FROM copied JOIN recorded USING (identifier))")
	}
	sql := "WITH " + strings.Join(append(parts, statement(names[0])), ", ")
	for i, name := range names[1:] {
		if i == 0 {
			sql += ", "
		}
		sql += statement(name)
	}
	return sql, nil
}

// recorded puts the files on record, and says whether all are new. Those that the registry
// holds under another uuid or object are ErrMoved.
func (r recordedFiles) recorded(ctx context.Context, args pgx.NamedArgs) (allNew bool, err error) {
	sql, err := r.sql(args, "files")
	if err != nil {
		return false, err
	}
	if r.small == nil {
		return r.recordedTable(ctx, sql, args)
	}
	rows, _ := r.tx.Query(ctx, sql+statement("files of the statement"), args)
	var identifier string
	var id int64
	var isNew bool
	ids, news := map[string]int64{}, map[string]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&identifier, &id, &isNew}, func() error {
		ids[identifier], news[identifier] = id, isNew
		return nil
	}); err != nil {
		return false, fmt.Errorf("files: %w", Refusal(err))
	}
	allNew = true
	for _, row := range r.small {
		identifier, _ := row["identifier"].(string)
		id, ok := ids[identifier]
		if !ok {
			return false, fmt.Errorf("file %q: %w", identifier, ErrMoved)
		}
		row["id"], row["is_new"] = id, news[identifier]
		allNew = allNew && news[identifier]
	}
	return allNew, nil
}

func (r recordedFiles) recordedTable(ctx context.Context, sql string, args pgx.NamedArgs) (allNew bool, err error) {
	tag, err := r.tx.Exec(ctx, sql+statement("files of the table"), args)
	if err != nil {
		return false, fmt.Errorf("files: %w", Refusal(err))
	}
	if tag.RowsAffected() < int64(r.count) {
		var moved string
		if err := r.tx.QueryRow(ctx, statement("moved")).Scan(&moved); err != nil {
			return false, fmt.Errorf("check the files: %w", err)
		}
		return false, fmt.Errorf("file %q: %w", moved, ErrMoved)
	}
	if _, err := r.tx.Exec(ctx, `ANALYZE recorded`); err != nil {
		return false, fmt.Errorf("count the recorded files: %w", err)
	}
	if err := r.tx.QueryRow(ctx, `SELECT coalesce(bool_and(is_new), true) FROM recorded`).Scan(&allNew); err != nil {
		return false, fmt.Errorf("check the recorded files: %w", err)
	}
	return allNew, nil
}

// row is what columnNames names.
func (f FileRecord) row(said *texts) ([]any, error) {
	var digests [4][]byte
	for i, d := range f.digests() {
		b, ok := fromHex(d.digest)
		if !ok || len(b) != d.size {
			return nil, fmt.Errorf("file %q: %q is no %s: %w", f.Identifier, d.digest, d.algorithm, errNoDigest)
		}
		digests[i] = b
	}
	var targets, buckets, keys, urls, etags, by []string
	var stored, verified []time.Time
	for _, c := range f.Copies {
		targets, buckets, keys = append(targets, c.Target), append(buckets, c.Bucket), append(keys, c.Key)
		urls, etags = append(urls, c.URL), append(etags, c.ETag)
		stored, verified = append(stored, c.StoredAt), append(verified, c.VerifiedAt)
		by = append(by, c.VerifiedBy)
	}
	kind, times, facts := said.file(f)
	return []any{
		f.Identifier, f.UUID, f.Format.MIME, f.Format.PUID, f.Format.IdentifiedBy, f.Format.Name, f.Format.Method, f.Format.SignatureVersion,
		f.Format.Reason, TimeOrNull(f.Format.At), f.Size, TimeOrNull(f.ModTime), f.DigestedAt,
		digests[0], digests[1], digests[2], digests[3],
		targets, buckets, keys, urls, etags, stored, verified, by, kind, times, facts,
	}, nil
}

var errNoDigest = errors.New("not lower-case hexadecimal of its length")

type digest struct {
	algorithm, digest string
	size              int
	place             string // of what events say of it
}

// digests are in the order in which events and the registry have them.
func (f FileRecord) digests() [4]digest {
	return [4]digest{
		{"md5", f.MD5, 16, "md5:%h01"}, {"sha1", f.SHA1, 20, "sha1:%h02"}, {"sha256", f.SHA256, 32, "sha256:%h03"}, {"sha512", f.SHA512, 64, "sha512:%h04"},
	}
}

// fromHex is false for what hex.EncodeToString would not write.
func fromHex(s string) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && s == strings.ToLower(s)
}
