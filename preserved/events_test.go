package preserved_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// seenFile is what was seen of a file so far, and the events that this takes.
type seenFile struct {
	fileRow

	lastCopies []copyRow      // the last that it had
	everAt     []string       // bucket/key of each copy that it ever had
	want       map[string]int // events by type and, of an address, by it
	storedBy   map[int64]bool // ingests that have stored it
}

type seenObject struct {
	objectRow

	recordedBy map[int64]bool // ingests that have recorded it
	deletions  int
}

// recorded is an ingest that has come past Record.
type recorded struct {
	Item   int64
	Object string
}

// follow compares what is on record with what it was, and counts the events that the acts make.
func (l *life) follow(files []fileRow, objects []objectRow, item int64) {
	for _, f := range files {
		was := l.files[f.identifier]
		if was == nil {
			was = &seenFile{want: map[string]int{"identifier assignment " + f.identifier: 1}, storedBy: map[int64]bool{}}
			l.files[f.identifier] = was
		}
		fresh := false
		for _, c := range f.copies {
			if slices.ContainsFunc(was.copies, func(o copyRow) bool { return o.bucket == c.bucket && o.key == c.key }) {
				continue
			}
			fresh = true
			kind := "replication "
			if c.target == targets()[0] {
				kind = "identifier assignment "
			}
			was.want[kind+c.url]++
			was.everAt = append(was.everAt, c.bucket+"/"+c.key)
		}
		if fresh && !was.storedBy[item] {
			was.storedBy[item] = true
			was.want["ingestion"]++
			was.want["message digest calculation"] += 4
			was.want["format identification"]++
			if strings.HasPrefix(f.path(), "data/") {
				was.want["manifest check"] += 2
			}
		}
		if was.state == "A" && f.state == "D" {
			was.want["deletion"]++
			was.lastCopies = was.copies
		}
		was.fileRow = f
	}
	for _, o := range objects {
		was := l.objects[o.identifier]
		if was == nil {
			was = &seenObject{recordedBy: map[int64]bool{}}
			l.objects[o.identifier] = was
		}
		if was.state == "A" && o.state == "D" {
			was.deletions++
		}
		was.objectRow = o
	}
	for _, at := range query(l, pgx.RowToStructByPos[recorded], `SELECT DISTINCT w.id, w.object_identifier FROM work_items w JOIN work_item_attempts a ON a.work_item_id = w.id
		WHERE w.object_identifier = ANY ($1) AND w.action = 'Ingest' AND a.stage = 'Record' AND a.outcome = 'done'`, l.ours()) {
		if o := l.objects[at.Object]; o != nil {
			o.recordedBy[at.Item] = true
		}
	}
}

// events compares the events on record with those that the acts have made.
func (l *life) events() {
	for _, f := range l.files {
		got := map[string]int{}
		for _, kind := range query(l, pgx.RowTo[string], `SELECT CASE
			WHEN event_type = 'identifier assignment' OR event_type = 'replication' AND detail NOT LIKE 'Replaced%' THEN event_type || ' ' || outcome_detail
			WHEN event_type = 'replication' THEN 'repair'
			WHEN event_type = 'fixity check' AND outcome_information = 'Fixity matches' THEN 'manifest check'
			WHEN event_type = 'deletion' AND outcome_detail NOT LIKE '%@%' THEN 'retirement ' || outcome_detail
			ELSE event_type END FROM premis_events WHERE generic_file_id = $1 AND NOT (event_type = 'fixity check' AND outcome_information <> 'Fixity matches')`, f.id) {
			got[kind]++
		}
		for _, kind := range query(l, pgx.RowTo[string], `SELECT 'repair' FROM fixity_failures WHERE generic_file_id = $1 AND state IN ('repaired', 'replaced')`, f.id) {
			f.want[kind]++
		}
		for _, n := range query(l, pgx.RowTo[int], `SELECT count(*)::int FROM fixity_failures b WHERE b.generic_file_id = $1 AND b.state <> 'replaced' AND NOT EXISTS (
			SELECT FROM premis_events e WHERE e.generic_file_id = b.generic_file_id AND e.event_type = 'fixity check' AND e.outcome = 'Failure' AND strpos(e.outcome_information, b.url) > 0)`, f.id) {
			if n > 0 {
				l.wrong("events", "%s: %d copies were found bad, and no event says so", f.identifier, n)
			}
		}
		l.retirements(f, got)
		l.sameEvents(f.identifier, got, f.want)
	}
	for _, o := range l.objects {
		got := map[string]int{}
		for _, kind := range query(l, pgx.RowTo[string], `SELECT event_type FROM premis_events e JOIN intellectual_objects o ON o.id = e.intellectual_object_id
			WHERE o.identifier = $1 AND e.generic_file_id IS NULL`, o.identifier) {
			got[kind]++
		}
		n := len(o.recordedBy)
		l.sameEvents(o.identifier, got, map[string]int{
			"creation": 1, "identifier assignment": 1, "ingestion": n, "validation": n, "access assignment": n, "deletion": o.deletions,
		})
	}
}

// retirements expects an event of each copy that was replaced and is gone, but for those whose
// item has not come to its end.
func (l *life) retirements(f *seenFile, got map[string]int) {
	for _, url := range query(l, pgx.RowTo[string], `SELECT url FROM retired_copies WHERE generic_file_id = $1`, f.id) {
		got["retirement "+url]++
	}
	for kind := range got {
		if url, ok := strings.CutPrefix(kind, "retirement "); ok && f.want["identifier assignment "+url]+f.want["replication "+url] >= got[kind] {
			delete(got, kind)
		}
	}
}

func (l *life) sameEvents(about string, got, want map[string]int) {
	kinds := map[string]bool{}
	for kind := range got {
		kinds[kind] = true
	}
	for kind := range want {
		kinds[kind] = true
	}
	for kind := range kinds {
		if got[kind] != want[kind] {
			l.wrong("events", "%s has %d events %q, and the acts make %d", about, got[kind], kind, want[kind])
		}
	}
}

// manifestsOf says what is wrong with the payload manifest of a bag; "" if nothing is.
func manifestsOf(content []byte, name string) string {
	payload, manifest := map[string]string{}, ""
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err.Error()
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err.Error()
		}
		switch path := strings.TrimPrefix(h.Name, name+"/"); {
		case path == "manifest-sha256.txt":
			manifest = string(text)
		case strings.HasPrefix(path, "data/") && h.Typeflag == tar.TypeReg:
			payload[path] = digestOf(string(text))
		}
	}
	for line := range strings.Lines(manifest) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if payload[path] != sum {
			return "the digest of " + path + " is another than its manifest says"
		}
		delete(payload, path)
	}
	for path := range payload {
		return "no manifest lists " + path
	}
	return ""
}
