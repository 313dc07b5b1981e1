package fixity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// A report of any length is taken in, as the bytes come; what is wrong with some of
// its rows keeps none of the others from being done.
func TestLongReportIsTakenIn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 1203 // more than two batches
	a.Deposit("bag.tar", a.Bag(bagtest.Spec{Name: "bag", StorageOption: "Glacier-VA", Files: []bagtest.File{{Path: "data/a", Content: "content"}}}))
	a.Work()
	a.Exec(fmt.Sprintf(`WITH f AS (
		INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, intellectual_object_id, identifier || n, gen_random_uuid(), 'text/plain', 1, storage_option, now() - interval '2 years'
		FROM generic_files, generate_series(1, %d) n WHERE identifier LIKE '%%/data/a' RETURNING id, identifier
	), c AS (INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'sha256', repeat('a', 64), now() FROM f)
	INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at)
	SELECT id, 'https://s3/' || id, 'Glacier-VA', '%s', 'key-' || split_part(identifier, '/a', 2), now() - interval '2 years', now(), now() - interval '2 years' FROM f`,
		n, a.Deps.Targets["Glacier-VA"].Name()))
	var report strings.Builder
	row := func(i int, sum string) {
		fmt.Fprintf(&report, `%s,key-%d,,succeeded,,200,"{""checksumAlgorithm"":""SHA256"",""checksumType"":""FULL_OBJECT"",""checksum_hex"":""%s""}"`+"\r\n",
			a.Deps.Targets["Glacier-VA"].Name(), i, sum)
	}
	for i := 1; i <= n; i++ {
		switch i {
		case 600:
			row(i, strings.Repeat("B", 64))
		case 601:
			report.WriteString(strings.Repeat("x", 3<<20) + "\n")
			row(i, strings.Repeat("A", 64))
		case 602:
			row(i, strings.Repeat("A", 64))
			row(i, strings.Repeat("A", 64)) // once more
		default:
			row(i, strings.Repeat("A", 64))
		}
	}
	tx := must.Get(a.DB.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), `UPDATE generic_files SET mod_time = now() WHERE identifier LIKE '%/a17'`))(t)
	done := make(chan error, 1)
	var sum Sum
	var problems []Problem
	go func() {
		r := Report{Registry: a.Deps.Registry, Target: "Glacier-VA", Bucket: a.Deps.Targets["Glacier-VA"], At: time.Now().Add(-time.Hour)}
		var err error
		sum, err = r.Import(t.Context(), strings.NewReader(report.String()), func(p Problem) { problems = append(problems, p) })
		done <- err
	}()
	testenv.Eventually(t, "the first batch to be on record", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE object = 'S3 checksum report'`) >= 499
	})
	if err := tx.Rollback(t.Context()); err != nil { // it was at one of them
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Sum{Rows: n + 2, Matched: n - 1, Altered: 1, Known: 1, Unreadable: 1}, sum); diff != "" {
		t.Errorf("it came to (-want +got):\n%s", diff)
	}
	file := "test.edu/bag/data/a600"
	want := []Problem{
		{Line: 600, Key: "key-600", File: file, Problem: "checksum mismatch: expected sha256 " + strings.Repeat("a", 64) + ", got " + strings.Repeat("b", 64)},
		{Line: 601, Problem: "the row is too long"},
	}
	if problems[0].Line == 601 { // a batch is reported when it is done
		problems[0], problems[1] = problems[1], problems[0]
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records WHERE target = 'Glacier-VA' AND last_fixity_at BETWEEN now() - interval '2 hours' AND now() - interval '50 minutes'`); got != n {
		t.Errorf("%d copies were checked then, want %d", got, n)
	}
	if got := a.Rows(`SELECT file FROM bad_copies`); len(got) != 1 || got[0] != file {
		t.Errorf("bad copies %q", got)
	}
}
