// Package exports writes what is on record of an object or an institution for people and
// programs outside: inventories, manifests, events, PREMIS documents and evidence packs.
//
// An export is written page by page in the order of identifiers, so that it takes no more
// memory for millions of files than for one. A [Snapshot] shows it as it was at one moment.
package exports

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Kind is what an export has.
type Kind = record.ExportKind

// All kinds.
const (
	Inventory Kind = "inventory" // active files as CSV
	Manifest  Kind = "manifest"  // active files with their SHA-256, as sha256sum and BagIt have them
	Events    Kind = "events"    // as JSON lines
	PREMIS    Kind = "premis"    // objects, files and events as PREMIS 3 XML
	Evidence  Kind = "evidence"  // all of these and more of one object, as a ZIP archive
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Inventory, Manifest, Events, PREMIS, Evidence} }

// Of is what an export is of: an institution, or one object of it.
type Of struct {
	Kind        Kind
	Institution int64  // ID
	Identifier  string // of the institution
	ObjectID    int64  // 0: the whole institution
	Object      string // identifier; "": the whole institution
}

// prefix is what the identifiers of the files begin with.
func (o Of) prefix() string {
	if o.Object != "" {
		return o.Object + "/"
	}
	return o.Identifier + "/"
}

// Name is the name of a file with the content.
func (o Of) Name() string {
	name := o.Identifier
	if o.Object != "" {
		name = o.Object[len(o.Identifier)+1:]
	}
	return name + o.content()[1]
}

// MediaType is that of the content.
func (o Of) MediaType() string { return o.content()[0] }

// content is its media type, and the end of the name of a file with it.
func (o Of) content() [2]string {
	return map[Kind][2]string{
		Inventory: {"text/csv; charset=utf-8", "-inventory.csv"},
		Manifest:  {"text/plain; charset=utf-8", "-manifest-sha256.txt"},
		Events:    {"application/x-ndjson", "-events.jsonl"},
		PREMIS:    {"application/xml", "-premis.xml"},
		Evidence:  {"application/zip", "-evidence.zip"},
	}[o.Kind]
}

// Records are the exports of a registry. They are safe for concurrent use.
type Records struct {
	db    registry.Database
	scope registry.Scope
}

// In returns those of r within s. The zero scope has none.
func In(r *registry.Registry, s registry.Scope) Records { return Records{r.DB(), s} }

// Find looks up an object, or without one an institution, by its identifier. Whatever is not
// in the scope is [registry.ErrNotFound].
func (r Records) Find(ctx context.Context, kind Kind, institution, object string) (Of, error) {
	own, _ := r.scope.Institution()
	args := pgx.NamedArgs{"all": r.scope.All(), "own": own, "institution": institution, "object": object}
	o := Of{Kind: kind, Object: object}
	// By intellectual_objects_identifier_key or institutions_identifier_key.
	sql := `SELECT i.id, i.identifier, 0::bigint FROM institutions i WHERE i.identifier = @institution AND (@all OR i.id = @own)`
	if object != "" {
		sql = `SELECT i.id, i.identifier, o.id FROM intellectual_objects o JOIN institutions i ON i.id = o.institution_id
			WHERE o.identifier = @object AND (@all OR i.id = @own)`
	}
	err := r.db.QueryRow(ctx, sql, args).Scan(&o.Institution, &o.Identifier, &o.ObjectID)
	if err != nil {
		return Of{}, fmt.Errorf("look up what to export: %w", registry.Refusal(err))
	}
	if kind == Evidence && object == "" {
		return Of{}, fmt.Errorf("export: %w: an evidence pack is of one object; name it", registry.ErrRefused)
	}
	return o, nil
}

// Files counts the files of an export, deleted ones too, up to one more than most
// (generic_files_identifier_key).
func (r Records) Files(ctx context.Context, o Of, most int64) (n int64, err error) {
	first, end := rangeOf(o.prefix())
	err = r.db.QueryRow(ctx, `SELECT count(*) FROM (
		SELECT FROM generic_files WHERE identifier >= $1 AND identifier < $2 AND institution_id = $3 LIMIT $4) f`, first, end, o.Institution, most+1).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the files of an export: %w", registry.Refusal(err))
	}
	return n, nil
}

// rangeOf are the first text with a prefix that ends with a slash, and the first one after
// all of them, in the order of bytes.
func rangeOf(prefix string) (first, end string) { return prefix, prefix[:len(prefix)-1] + "0" }

// ErrTooMany says that a caller has as many exports as one may have at once.
var ErrTooMany = errors.New("there are two exports of yours already; wait until one of them has ended")

// Times of a snapshot.
const (
	// MostTime is how long a snapshot may be held: as long as it is, dead rows cannot be
	// removed.
	MostTime = 10 * time.Minute
	idleTime = 2 * time.Minute // between two pages, while the reader takes the first
)

// Snapshot is what is on record at one moment. It reads one thing at a time.
type Snapshot struct {
	tx pgx.Tx
	// Taken is when that moment was.
	Taken time.Time
}

// Snapshot calls do with a snapshot that ends with it, after [MostTime] at the latest. A
// caller has two at once at the most, in all processes together; a third is [ErrTooMany].
// The caller "" is a command, or a worker, for which there is neither bound.
func (r Records) Snapshot(ctx context.Context, caller string, do func(context.Context, *Snapshot) error) error {
	if caller != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MostTime)
		defer cancel()
	}
	c, err := r.db.Alone(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read with
	return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		s := &Snapshot{tx: tx}
		// The lock ends with the connection, however this process ends.
		const beginSQL = `SELECT now(), set_config('idle_in_transaction_session_timeout', $1, true), set_config('jit', 'off', true),
			$2 = '' OR pg_try_advisory_xact_lock(hashtextextended('farol export 1 ' || $2, 0)) OR pg_try_advisory_xact_lock(hashtextextended('farol export 2 ' || $2, 0))`
		var free bool
		if err := tx.QueryRow(ctx, beginSQL, fmt.Sprint(idleTime.Milliseconds()), caller).Scan(&s.Taken, nil, nil, &free); err != nil {
			return fmt.Errorf("begin an export: %w", err)
		}
		if !free {
			return ErrTooMany
		}
		return do(ctx, s)
	})
}
