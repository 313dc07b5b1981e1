package exports

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// evidenceItem is a work item of an object, for people outside: without hosts and processes.
type evidenceItem struct {
	ID              int64     `json:"id"`
	Action          string    `json:"action"`
	Stage           string    `json:"stage"`
	Status          string    `json:"status"`
	Name            string    `json:"name"`
	Etag            string    `json:"etag"`
	Size            int64     `json:"size"`
	User            string    `json:"user"`
	InstApprover    *string   `json:"inst_approver"`
	Note            string    `json:"note"`
	Outcome         string    `json:"outcome"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	DeletionRequest *int64    `json:"deletion_request_id"`
}

// evidenceItemsSQL finds the items of an object: those that ended (work_items_ended_object),
// the live ones (one_live_ingest, work_items_requests), and those of the archive
// (work_items_archive_object).
const evidenceItemsSQL = `
SELECT w.id, w.action::text AS action, w.stage::text AS stage, w.status::text AS status, w.name::text AS name, w.etag::text AS etag, w.size::bigint AS size,
	w."user"::text AS "user", w.inst_approver, w.note, w.outcome, w.created_at::timestamptz AS created_at, w.updated_at::timestamptz AS updated_at,
	w.deletion_request_id AS deletion_request
FROM (
	SELECT * FROM work_items WHERE NOT retry AND object_identifier = @object AND institution_id = @institution
	UNION ALL SELECT * FROM work_items WHERE id IN (SELECT u.work_item_id FROM uploads_in_work u WHERE u.object_identifier = @object)
	UNION ALL SELECT * FROM work_items WHERE action <> 'Ingest' AND retry AND object_identifier = @object
	UNION ALL SELECT * FROM work_items_archive WHERE object_identifier = @object AND institution_id = @institution
) w ORDER BY w.id`

// badCopy is a copy that was found to be bad, and what became of it.
type badCopy struct {
	File string `json:"file"`

	record.CopyFailure
}

// By generic_files_identifier_key and fixity_failures_file, or deletion_receipts_file.
const (
	badCopiesSQL = `
SELECT f.identifier AS file, b.*
FROM (SELECT f.id, f.identifier FROM generic_files f WHERE ` + fileRange + `) f
CROSS JOIN LATERAL (SELECT target, url, problem, algorithm, expected, found, found_at, seen_at, state, closed_at, quarantined_as, repaired_from
	FROM fixity_failures b WHERE b.generic_file_id = f.id OFFSET 0) b
ORDER BY f.identifier, b.found_at`

	receiptsSQL = `
SELECT f.identifier AS file, d.*
FROM (SELECT f.id, f.identifier FROM generic_files f WHERE ` + fileRange + `) f
CROSS JOIN LATERAL (SELECT work_item_id AS item, target, url, seen_at, found_missing, accepted_by, removed_at, kept, absent_at, kept_by_store
	FROM deletion_receipts d WHERE d.generic_file_id = f.id OFFSET 0) d
ORDER BY f.identifier, d.item, d.target`
)

// receipt is what a deletion did to a copy.
type receipt struct {
	File         string     `json:"file"`
	Item         int64      `json:"work_item_id"`
	Target       string     `json:"target"`
	URL          string     `json:"url" db:"url"`
	SeenAt       *time.Time `json:"seen_at"`
	FoundMissing bool       `json:"found_missing"`
	AcceptedBy   string     `json:"accepted_by"`
	RemovedAt    *time.Time `json:"removed_at"`
	Kept         string     `json:"kept"`
	AbsentAt     *time.Time `json:"absent_at"`
	KeptByStore  string     `json:"kept_by_store"`
}

// pack is an evidence pack in the making.
type pack struct {
	*zip.Writer

	taken   time.Time
	sums    strings.Builder // as sha256sum has them
	records int64
}

// entry is a file in the pack, which is digested as it is written.
type entry struct {
	*bufio.Writer

	sum hash.Hash
}

func (p *pack) add(name string, write func(io.Writer) (int64, error)) error {
	w, err := p.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: p.taken})
	if err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	e := entry{sum: sha256.New()}
	e.Writer = bufio.NewWriterSize(io.MultiWriter(w, e.sum), 64<<10)
	n, err := write(e)
	if err == nil {
		err = e.Flush()
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	p.records += n
	fmt.Fprintf(&p.sums, "%x  %s\n", e.sum.Sum(nil), name)
	return nil
}

// lines adds rows as lines of JSON.
func lines[T any](ctx context.Context, p *pack, s *Snapshot, name, sql string, args pgx.NamedArgs) error {
	return p.add(name, func(w io.Writer) (n int64, err error) {
		rows, err := s.tx.Query(ctx, sql, args)
		if err != nil {
			return 0, fmt.Errorf("export: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			v, err := pgx.RowToStructByName[T](rows)
			if err == nil {
				err = writeLine(w, v)
			}
			if err != nil {
				return n, err
			}
			n++
		}
		return n, rows.Err() //nolint:wrapcheck // add names the file
	})
}

// evidence writes all that is on record of an object as a ZIP archive, which ends with the
// SHA-256 of each file in it.
func (s *Snapshot) evidence(ctx context.Context, w io.Writer, o Of) (int64, error) {
	p := &pack{Writer: zip.NewWriter(w), taken: s.Taken.UTC()}
	objects, _, err := s.objects(ctx, o, "")
	if err != nil || len(objects) != 1 {
		return 0, fmt.Errorf("look up the object: %w", firstOf(err, registry.ErrNotFound))
	}
	err = p.add("object.json", func(w io.Writer) (int64, error) { return 1, writeLine(w, objects[0]) })
	for _, part := range []struct {
		name string
		kind Kind
	}{{"inventory.csv", Inventory}, {"manifest-sha256.txt", Manifest}, {"events.jsonl", Events}, {"premis.xml", PREMIS}} {
		if err == nil {
			of := o
			of.Kind = part.kind
			err = p.add(part.name, func(w io.Writer) (int64, error) { return s.WriteAll(ctx, w, of) })
		}
	}
	args := o.args("", 0)
	if err == nil {
		err = lines[badCopy](ctx, p, s, "bad-copies.jsonl", badCopiesSQL, args)
	}
	if err == nil {
		err = lines[receipt](ctx, p, s, "deletion-receipts.jsonl", receiptsSQL, args)
	}
	if err == nil {
		err = lines[evidenceItem](ctx, p, s, "work-items.jsonl", evidenceItemsSQL, pgx.NamedArgs{"institution": o.Institution, "object": o.Object})
	}
	if err == nil {
		sums := p.sums.String()
		err = p.add("sha256sums.txt", func(w io.Writer) (int64, error) {
			_, err := io.WriteString(w, sums)
			return 0, err
		})
	}
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		return 0, fmt.Errorf("write an evidence pack: %w", err)
	}
	return p.records, nil
}

func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
