package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

func (a *archive) item(id int64) record.WorkItem {
	a.t.Helper()
	return must.Get(a.WorkItem(context.Background(), id))(a.t)
}

// The stage begins again, now: nothing of the last try is used or reported, and
// its attempt has an end in the ledger.
func TestRequeuedItemBeginsAnew(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.started(etag1, 7)
	a.exec(`UPDATE work_items SET run_at = now() + interval '1 hour', note = 'Trouble.', outcome = 'Trouble.', error_code = 'trouble'`)
	item := must.Get(a.Requeue(context.Background(), id, "Store"))(t)
	if item.Outcome != "" || item.ErrorCode != "" || !strings.HasPrefix(item.Note, "Requeued for Store by ") || item.RunAt == nil || item.RunAt.After(item.UpdatedAt) {
		t.Errorf("item = %+v", item)
	}
	if entered := value[int64](a, `SELECT entered_token FROM work_items`); entered != item.ClaimToken || entered != 8 {
		t.Errorf("its progress goes by %d, and its token is %d; want 8 for both", entered, item.ClaimToken)
	}
	if got := value[string](a, `SELECT concat_ws(' ', ended_at IS NOT NULL, outcome, error_code, error) FROM work_item_attempts`); got != "t cancelled by-hand "+item.Note {
		t.Errorf("attempt = %q", got)
	}
}

// What is queued already keeps its place and what its stage has finished. One
// that waits for its next attempt need not wait any more, and has all attempts
// again.
func TestRequeueOfAQueuedItemGivesItItsAttempts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	for _, stage := range []string{"", "Receive"} {
		a.exec(`UPDATE work_items SET claim_token = claim_token + 1, attempt = 1, run_at = now() + interval '1 hour', note = 'Will be tried again.'`)
		before := a.item(id)
		after, err := a.Requeue(context.Background(), id, registry.Stage(stage))
		if err != nil || after.RunAt == nil || after.RunAt.After(after.UpdatedAt) {
			t.Errorf("Requeue(%q) = due at %v, %v; want it due", stage, after.RunAt, err)
		}
		before.RunAt, before.UpdatedAt = after.RunAt, after.UpdatedAt
		before.Attempt, before.ClaimToken = 0, before.ClaimToken+1
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("Requeue(%q): item (-before +after):\n%s", stage, diff)
		}
		again, err := a.Requeue(context.Background(), id, registry.Stage(stage))
		if diff := cmp.Diff(after, again); err != nil || diff != "" {
			t.Errorf("Requeue(%q) once more: %v, item (-before +after):\n%s", stage, err, diff)
		}
	}
}

// A person looks at what a person has parked, and not at what is over.
func TestItemsEndedByHandSayWho(t *testing.T) {
	t.Parallel()
	for status, review := range map[string]bool{"Suspended": true, "Failed": true, "Cancelled": false} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.upload(etag1, time.Now(), "bag.tar")[0]
			a.exec(`UPDATE work_items SET status = $1`, status)
			item := a.item(id)
			want := status + " by " + value[string](a, `SELECT session_user::text`)
			if item.NeedsAdminReview != review || item.Retry || item.Note != want || item.ErrorCode != "by-hand" {
				t.Errorf("item = %+v, want review: %v, note %q", item, review, want)
			}
		})
	}
}

// Every process that waits for work of a stage is notified at once.
func TestRequeuedAndNewItemsNotifyWorkers(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx, stop := context.WithTimeout(context.Background(), testenv.Patience)
	defer stop()
	c := must.Get(a.db.Acquire(ctx))(t)
	defer c.Release()
	must.Get(c.Exec(ctx, `LISTEN farol_work`))(t)
	hear := func(stage string) {
		t.Helper()
		n, err := c.Conn().WaitForNotification(ctx)
		if err != nil || !strings.HasPrefix(n.Payload+"\t", "\n"+stage+"\t") { // a worker would name itself before the line break
			t.Fatalf("heard %+v, %v; want %s", n, err, stage)
		}
	}
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	hear("Receive")
	a.exec(`UPDATE work_items SET claim_token = 6, stage = 'Store'`)
	must.Get(a.Requeue(ctx, id, "Validate"))(t)
	hear("Validate")
}

// A refusal says what to do instead.
func TestRefusalsAdviseWhatWorks(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	_, err := a.Requeue(context.Background(), id, "Store")
	var no *registry.Refused
	if !errors.As(err, &no) || !errors.Is(err, registry.ErrRefused) || no.Code != "not-at-stage" || no.Args["item"] != fmt.Sprint(id) || no.Args["stage"] != "Receive" {
		t.Errorf("Requeue = %v, %+v, want a refusal with its code and arguments", err, no)
	}
	_, err = a.db.Exec(context.Background(), `SELECT requeue($1, 'Store')`, id)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.HasSuffix(pg.Hint, fmt.Sprintf("or an earlier one: SELECT requeue(%d, 'Receive');", id)) {
		t.Errorf("in psql: %v, want a hint in SQL", err)
	}
}

// The bands begin at 0, 64 MiB, 1 GiB and 64 GiB, and an item changes its band
// with its size.
func TestBandGoesBySize(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for size, want := range map[int64]int{
		0: 0, 64<<20 - 1: 0, 64 << 20: 1, 1<<30 - 1: 1, 1 << 30: 2, 64<<30 - 1: 2, 64 << 30: 3, 5 << 40: 3,
	} {
		id := value[int64](a, `
			INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			VALUES ($1, 'Ingest', 'Receive', $2::bigint || '.tar', 'r', 'e', $2, now()) RETURNING id`, a.in.ID, size)
		if band := value[int](a, `SELECT size_band FROM work_items WHERE id = $1`, id); band != want {
			t.Errorf("%d bytes are in band %d, want %d", size, band, want)
		}
		a.exec(`UPDATE work_items SET size = 70 << 20 WHERE id = $1`, id)
		if band := value[int](a, `SELECT size_band FROM work_items WHERE id = $1`, id); band != 1 {
			t.Errorf("70 MiB that were %d bytes are in band %d, want 1", size, band)
		}
	}
}
