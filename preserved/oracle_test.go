package preserved_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This oracle reads rows and buckets, by statements of its own. It is asked after each attempt of
// a worker and after each step.

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// copyRow is a copy as it is on record.
type copyRow struct {
	file, target, bucket, key, url string
	bad                            bool // an open finding names it
	gone                           bool // a deletion that is not over has removed it
}

// fileRow is a file as it is on record.
type fileRow struct {
	id         int64
	identifier string
	state      string
	digest     string // SHA-256
	mark       int64  // deletion that has begun; 0: none
	markOf     string // status of that item
	copies     []copyRow
}

// path is that of the file in its bag.
func (f fileRow) path() string { return strings.SplitN(f.identifier, "/", 3)[2] }

func (f fileRow) object() string {
	parts := strings.SplitN(f.identifier, "/", 3)
	return parts[0] + "/" + parts[1]
}

type objectRow struct {
	identifier string
	state      string
	mark       int64
	markOf     string
}

type itemRow struct {
	id                                              int64
	action, stage, status, code, note, object, file string
}

func query[T any](l *life, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) []T {
	l.T.Helper()
	rows, _ := l.DB.Query(context.Background(), sql, args...)
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		l.T.Fatalf("%s: %v", sql, err)
	}
	return list
}

const copiesSQL = `
SELECT f.identifier, s.target, s.bucket, s.key, s.url, EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open') AS bad,
	EXISTS (SELECT FROM deletion_receipts r JOIN work_items w ON w.id = r.work_item_id
		WHERE r.generic_file_id = f.id AND r.target = s.target AND r.key = s.key AND r.begun_at IS NOT NULL AND w.status IN ('Pending', 'Started', 'Suspended')) AS gone
FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id JOIN intellectual_objects o ON o.id = f.intellectual_object_id
WHERE o.identifier = ANY ($1) ORDER BY f.identifier, s.target, s.key`

func (l *life) copies() []copyRow {
	return query(l, func(r pgx.CollectableRow) (c copyRow, err error) {
		err = r.Scan(&c.file, &c.target, &c.bucket, &c.key, &c.url, &c.bad, &c.gone)
		return c, err
	}, copiesSQL, l.ours())
}

func (l *life) copiesOf(object string) []copyRow {
	return slices.DeleteFunc(l.copies(), func(c copyRow) bool { return !strings.HasPrefix(c.file, object+"/") })
}

const filesSQL = `
SELECT f.id, f.identifier, f.state, coalesce((SELECT c.digest FROM checksums c WHERE c.generic_file_id = f.id AND c.algorithm = 'sha256' ORDER BY c.datetime DESC LIMIT 1), ''),
	coalesce(f.deleted_by_item, 0), coalesce((SELECT w.status FROM all_work_items w WHERE w.id = f.deleted_by_item), '')
FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id WHERE o.identifier = ANY ($1) ORDER BY f.identifier`

func (l *life) rows() []fileRow {
	files := query(l, func(r pgx.CollectableRow) (f fileRow, err error) {
		err = r.Scan(&f.id, &f.identifier, &f.state, &f.digest, &f.mark, &f.markOf)
		return f, err
	}, filesSQL, l.ours())
	for _, c := range l.copies() {
		i := slices.IndexFunc(files, func(f fileRow) bool { return f.identifier == c.file })
		files[i].copies = append(files[i].copies, c)
	}
	return files
}

func (l *life) objectRows() []objectRow {
	return query(l, func(r pgx.CollectableRow) (o objectRow, err error) {
		err = r.Scan(&o.identifier, &o.state, &o.mark, &o.markOf)
		return o, err
	}, `SELECT o.identifier, o.state, coalesce(o.deleted_by_item, 0), coalesce((SELECT w.status FROM all_work_items w WHERE w.id = o.deleted_by_item), '')
		FROM intellectual_objects o WHERE o.identifier = ANY ($1) ORDER BY 1`, l.ours())
}

func (l *life) items() []itemRow {
	return query(l, func(r pgx.CollectableRow) (i itemRow, err error) {
		err = r.Scan(&i.id, &i.action, &i.stage, &i.status, &i.code, &i.note, &i.object, &i.file)
		return i, err
	}, `SELECT w.id, w.action, w.stage, w.status, w.error_code, w.note, w.object_identifier,
		coalesce((SELECT f.identifier FROM generic_files f WHERE f.id = w.generic_file_id), '') FROM work_items w WHERE w.object_identifier = ANY ($1) ORDER BY w.id`, l.ours())
}

// observe judges what is on record and in the buckets now. item is the one that a worker has
// just had; 0 is none.
func (l *life) observe(item int64) {
	files, objects, items := l.rows(), l.objectRows(), l.items()
	l.follow(files, objects, item)
	l.looked(items)
	for _, f := range files {
		if f.state == "A" {
			l.active(f)
		} else {
			l.deleted(f)
		}
	}
	for _, o := range objects {
		if o.state == "A" && o.mark > 0 && (o.markOf == "Cancelled" || o.markOf == "Failed" || o.markOf == "Success") {
			l.wrong("mark-left", "%s is marked as being deleted by item %d, which is %s", o.identifier, o.mark, o.markOf)
		}
	}
	for _, i := range items {
		if i.status != l.ended[i.id] {
			l.ended[i.id] = i.status
			l.came(i, files)
		}
	}
}

// active judges a file that is on record: each target has one copy with its bytes, or a finding,
// or a deletion that is not over names what is wrong.
func (l *life) active(f fileRow) {
	if f.mark > 0 && (f.markOf == "Cancelled" || f.markOf == "Failed" || f.markOf == "Success") {
		l.wrong("mark-left", "%s is marked as being deleted by item %d, which is %s", f.identifier, f.mark, f.markOf)
	}
	if _, ok := l.contents[f.digest]; !ok {
		l.wrong("digest-of-nothing", "%s is on record with the digest %s, which nothing had that was deposited", f.identifier, f.digest)
	}
	for _, target := range targets() {
		n := 0
		for _, c := range f.copies {
			if c.target != target {
				continue
			}
			n++
			if h := l.read(c.bucket, c.key); (!h.there || digestOf(string(h.body)) != f.digest) && !c.bad && !c.gone && !l.harmed[c.bucket+"/"+c.key] {
				l.wrong("copy-lost", "%s in %s under %s is %s, and nothing on record says so", f.identifier, target, c.key, map[bool]string{true: "altered", false: "missing"}[h.there])
			}
		}
		if n != 1 {
			l.wrong("copies-recorded", "%s has %d copies on record in %s", f.identifier, n, target)
		}
	}
}

// deleted judges a file that was deleted: no copy is left, and each that was has its receipt. A
// deletion that was cancelled after it had removed the last copy does not ask for it once more.
func (l *life) deleted(f fileRow) {
	if len(f.copies) > 0 {
		l.wrong("deleted-with-copies", "%s is deleted and has %d copies on record", f.identifier, len(f.copies))
	}
	seen := l.files[f.identifier]
	for _, c := range seen.lastCopies {
		if h := l.read(c.bucket, c.key); h.there {
			l.wrong("deleted-but-there", "%s is deleted and its copy %s is in %s", f.identifier, c.key, c.target)
		}
		var receipts int
		if err := l.DB.QueryRow(context.Background(), `SELECT count(*) FROM deletion_receipts WHERE generic_file_id = $1 AND target = $2 AND key = $3
			AND (absent_at IS NOT NULL OR EXISTS (SELECT FROM all_work_items w WHERE w.id = work_item_id AND w.status = 'Cancelled')) AND (removed_at IS NOT NULL) <> found_missing AND (NOT found_missing OR accepted_by <> '')`, f.id, c.target, c.key).Scan(&receipts); err != nil {
			l.T.Fatal(err)
		}
		if receipts == 0 {
			l.wrong("no-receipt", "%s is deleted and its copy in %s has no receipt", f.identifier, c.target)
		}
	}
}

// looked notes which copies a deletion or an ingest has asked for: what is wrong with them has
// to be on record from then on.
func (l *life) looked(items []itemRow) {
	for _, i := range items {
		if i.action != "Delete" || i.status != "Suspended" || i.code != "copies-missing" || l.ended[i.id] == "Suspended" {
			continue
		}
		for _, at := range query(l, pgx.RowTo[string], `SELECT bucket || '/' || key FROM deletion_receipts WHERE work_item_id = $1 AND found_missing AND accepted_by = ''`, i.id) {
			delete(l.harmed, at)
		}
	}
}

// came judges an item by the status that it has come to.
func (l *life) came(i itemRow, files []fileRow) {
	switch {
	case i.status != "Success":
	case i.action == "Ingest":
		for path, text := range l.bags[i.id] {
			k := slices.IndexFunc(files, func(f fileRow) bool { return f.identifier == i.object+"/"+path })
			if k < 0 || files[k].state != "A" || files[k].digest != digestOf(text) {
				l.wrong("not-ingested", "item %d is Success, and %s is not on record as it was deposited", i.id, path)
			}
		}
	case i.action == "Restore Object":
		l.restoredObject(i, files)
	case i.action == "Restore File":
		k := slices.IndexFunc(files, func(f fileRow) bool { return f.identifier == i.file })
		if h := l.read(l.In.RestoreBucket, i.file); !h.there || digestOf(string(h.body)) != files[k].digest {
			l.wrong("restored-otherwise", "item %d is Success, and the file %s that it delivered is not as on record", i.id, i.file)
		}
	}
}

// restoredObject compares a bag that was delivered with what is on record.
func (l *life) restoredObject(i itemRow, files []fileRow) {
	name := strings.SplitN(i.object, "/", 2)[1]
	h := l.read(l.In.RestoreBucket, i.object+".tar")
	got, err := filesOf(h.body, name)
	if !h.there || err != nil {
		l.wrong("restored-otherwise", "item %d is Success, and there is no bag of it: %v", i.id, err)
		return
	}
	for _, f := range files {
		if f.object() != i.object || f.state != "A" || f.path() == "bag-info.txt" { // which is brought up to date
			continue
		}
		if text, ok := got[f.path()]; !ok || digestOf(text) != f.digest {
			l.wrong("restored-otherwise", "item %d is Success, and %s of the bag that it delivered is not as on record", i.id, f.path())
		}
	}
	for path := range got {
		if !slices.ContainsFunc(files, func(f fileRow) bool { return f.identifier == i.object+"/"+path && f.state == "A" }) {
			l.wrong("restored-otherwise", "item %d is Success, and the bag that it delivered has %s", i.id, path)
		}
	}
	if wrong := manifestsOf(h.body, name); wrong != "" {
		l.wrong("restored-invalid", "item %d is Success, and the bag that it delivered is invalid: %s", i.id, wrong)
	}
}

// end does at the end of a history what must be possible then.
func (l *life) end() {
	l.step = "end: let all work end"
	l.keepFor(0)
	l.run(step{})
	l.observe(0)
	for _, i := range l.items() {
		if i.status == "Failed" || i.status == "Suspended" {
			l.do(`SELECT cancel($1, 'the end of the history')`, i.id)
		}
	}
	for id := l.request(`approved_at IS NULL AND cancelled_at IS NULL`); id > 0; id = l.request(`approved_at IS NULL AND cancelled_at IS NULL`) {
		l.do(`UPDATE deletion_requests SET cancelled_by = requested_by WHERE id = $1`, id)
	}
	l.observe(0)
	for n := range l.names {
		if l.touched[n] && len(l.verdict) == 0 {
			l.endOf(n)
		}
	}
	if len(l.verdict) == 0 {
		l.step = "end: events"
		l.observe(0)
		l.events()
		l.accounted()
	}
}

// endOf checks that an object can be checked, restored and deposited again.
func (l *life) endOf(n int) {
	object := l.object(n)
	active := slices.DeleteFunc(l.rows(), func(f fileRow) bool { return f.object() != object || f.state != "A" })
	l.step = "end: check " + object
	if l.checked(object); len(active) > 0 {
		l.observe(0)
		for _, c := range l.copiesOf(object) {
			if n := query(l, pgx.RowTo[bool], `SELECT s.last_fixity_at > now() - interval '1 hour' OR EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')
				FROM storage_records s WHERE s.target = $1 AND s.key = $2`, c.target, c.key); !slices.Equal(n, []bool{true}) {
				l.wrong("not-checked", "the copy of %s in %s was not read, though a check of the object was asked for", c.file, c.target)
			}
		}
	}
	whole := len(active) > 0
	for _, f := range active {
		whole = whole && slices.ContainsFunc(f.copies, func(c copyRow) bool {
			h := l.read(c.bucket, c.key)
			return h.there && digestOf(string(h.body)) == f.digest
		})
	}
	if whole {
		l.step = "end: restore " + object
		l.restore(step{n: []int{n, 0}})
		l.run(step{})
		l.observe(0)
		if got := l.newest(object); got.action != "Restore Object" || got.status != "Success" {
			l.wrong("not-restored", "%s is on record, all of its files have a good copy, and it cannot be restored: the newest item is a %s, %s: %s", object, got.action, got.status, got.note)
		}
	}
	if len(l.verdict) > 0 {
		return
	}
	l.step = "end: deposit " + object
	l.deposit(step{n: []int{n, 3}})
	l.run(step{})
	l.observe(0)
	if got := l.newest(object); got.action != "Ingest" || got.status != "Success" {
		l.wrong("not-deposited", "%s cannot be deposited again: the newest item is a %s, %s: %s", object, got.action, got.status, got.note)
	}
}

func (l *life) newest(object string) (newest itemRow) {
	for _, i := range l.items() {
		if i.object == object {
			newest = i
		}
	}
	return newest
}

// leave ends whatever a history has left in the queue, so that the next finds only its own.
func (l *life) leave() {
	for _, i := range l.items() {
		if i.status != "Success" && i.status != "Cancelled" {
			l.do(`SELECT cancel($1, 'the history is over')`, i.id)
		}
	}
}

// forgetAll has all be read again that was read of buckets.
func (w *world) forgetAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.held)
}

// accounted looks for objects in preservation buckets that no record names. Those of an ingest that
// did not succeed are nobody's yet.
func (l *life) accounted() {
	if slices.ContainsFunc(l.items(), func(i itemRow) bool { return i.action == "Ingest" && i.status != "Success" }) {
		return
	}
	named := map[string]bool{}
	for _, c := range l.copies() {
		named[c.bucket+"/"+c.key] = true
	}
	for _, f := range l.files {
		for _, at := range f.everAt {
			bucket, key, _ := strings.Cut(at, "/")
			if !named[at] && l.read(bucket, key).there {
				l.wrong("copy-not-named", "%s was a copy of %s, is there, and no record names it", at, f.identifier)
			}
		}
	}
}
