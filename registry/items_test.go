package registry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const etag1, etag2 = "11111111111111111111111111111111", "22222222222222222222222222222222-7"

// upload has the reader see some uploads, which were listed a moment ago.
func (a *archive) upload(etag string, modified time.Time, keys ...string) []int64 {
	a.t.Helper()
	return a.uploadListed(value[time.Time](a, `SELECT now() - interval '1 second'`), etag, modified, keys...)
}

func (a *archive) uploadListed(listed time.Time, etag string, modified time.Time, keys ...string) []int64 {
	a.t.Helper()
	var list []registry.Upload
	for _, k := range keys {
		list = append(list, registry.Upload{Key: k, ETag: etag, Size: 10, LastModified: modified})
	}
	return must.Get(a.CreateIngests(context.Background(), a.in, listed, list))(a.t)
}

// However many readers see the same uploads at once, each gets one item.
func TestReadersNeverMakeTwoItemsOfOneUpload(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprintf("bag-%d.tar", i))
	}
	now := time.Now()
	var readers sync.WaitGroup
	for range 6 {
		readers.Go(func() { a.upload(etag1, now, keys...) })
	}
	readers.Wait()
	if n := value[int](a, `SELECT count(*) FROM work_items`); n != len(keys) {
		t.Errorf("%d items of %d uploads", n, len(keys))
	}
	if n := value[int](a, `SELECT count(*) FROM topic_messages WHERE topic = 'ingest01_prefetch'`); n != len(keys) {
		t.Errorf("%d messages of %d uploads", n, len(keys))
	}
}

// What became of an upload decides whether the same bytes are taken again.
func TestUploadSeenAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ended  string // how the first item ended; "" is still live
		code   string
		later  bool  // it has a later time
		listed bool  // after the item had ended
		seen   bool  // by Farol, as it was uploaded
		size   int64 // 0: the same
		want   bool

		followed bool // by another version, which has ended
	}{
		"live":                      {want: false, later: true, listed: true},
		"failed, untouched":         {ended: "Failed", listed: true, want: false},
		"failed, with a new time":   {ended: "Failed", later: true, listed: true, want: false},
		"failed, seen again":        {ended: "Failed", later: true, seen: true, want: true},
		"failed, seen and asked":    {ended: "Failed", seen: true, want: false}, // of the same upload, twice
		"failed, of another size":   {ended: "Failed", later: true, size: 11, want: true},
		"failed, since followed":    {ended: "Failed", later: true, followed: true, want: true},
		"followed, untouched":       {ended: "Failed", followed: true, want: false},
		"cancelled, untouched":      {ended: "Cancelled", listed: true, want: false},
		"cancelled, uploaded again": {ended: "Cancelled", later: true, want: true},
		"suspended, untouched":      {ended: "Suspended", listed: true, want: false},
		"suspended, new time":       {ended: "Suspended", later: true, listed: true, want: false},
		"gone, uploaded again":      {ended: "Suspended", code: "bag-gone", later: true, want: true},
		"ingested, listed before":   {ended: "Success", want: false}, // Cleanup has removed it since
		"ingested, uploaded again":  {ended: "Success", later: true, want: true},
		"again in the same second":  {ended: "Success", listed: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			at := time.Now().Add(-time.Hour)
			a.upload(etag1, at, "bag.tar")
			switch tc.ended {
			case "":
			case "Success":
				a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, state)
					VALUES ($1, 'test.edu/bag', 'T', 'bag', 'p', $2, 'A')`, a.in.ID, etag1)
				a.exec(`UPDATE work_items SET claim_token = 9, stage = 'Cleanup', status = 'Success', retry = false,
					intellectual_object_id = (SELECT id FROM intellectual_objects)`)
			default:
				a.exec(`UPDATE work_items SET status = $1`, tc.ended)
				testenv.Scene(t, a.db, `UPDATE work_items SET error_code = $1`, tc.code)
			}
			if tc.followed {
				a.upload(etag2, at.Add(time.Second), "bag.tar")
				a.exec(`UPDATE work_items SET status = 'Failed' WHERE etag = $1`, etag2)
			}
			if tc.later {
				at = at.Add(time.Minute)
			}
			listed := value[time.Time](a, `SELECT now() - interval '1 minute'`)
			if tc.listed {
				listed = value[time.Time](a, `SELECT clock_timestamp()`)
			}
			ids, err := a.CreateIngests(t.Context(), a.in, listed, []registry.Upload{{Key: "bag.tar", ETag: etag1, Size: cmp.Or(tc.size, 10), LastModified: at, Seen: tc.seen}})
			if got := len(ids) == 1; got != tc.want || err != nil {
				t.Errorf("made an item: %v, want %v; %v", got, tc.want, err)
			}
		})
	}
}

// Before anything of it is stored, an upload gives way to the next version of
// the same bag; from then on the next version waits. Parts of one object wait
// for each other, whatever their stage.
func TestVersionsOfABagDoNotMeet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stage            string
		second           string // key of the second upload
		etag             string
		cancelled, waits bool
	}{
		"early, new version": {"Format Identification", "bag.tar", etag2, true, false},
		"late, new version":  {"Store", "bag.tar", etag2, false, true},
		"early, other part":  {"Receive", "bag.b02.of02.tar", etag2, false, true},
		"early, other bag":   {"Receive", "other.tar", etag2, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			first := a.upload(etag1, time.Now(), "bag.tar")[0]
			a.exec(`UPDATE work_items SET claim_token = 5, stage = $1`, tc.stage)
			second := a.upload(tc.etag, time.Now(), tc.second)[0]

			one, _ := a.WorkItem(context.Background(), first)
			two, _ := a.WorkItem(context.Background(), second)
			if got := one.Status == "Cancelled"; got != tc.cancelled {
				t.Errorf("first is %s, want cancelled: %v", one.Status, tc.cancelled)
			}
			if tc.cancelled && (!strings.Contains(one.Note, fmt.Sprint(second)) || one.NeedsAdminReview) {
				t.Errorf("first = %+v, want a note that names item %d, and no need of a person", one, second)
			}
			if got := two.WaitsFor != nil && *two.WaitsFor == first && two.RunAt == nil; got != tc.waits {
				t.Errorf("second waits: %v, want %v", got, tc.waits)
			}
			a.exec(`SELECT cancel($1) FROM work_items WHERE id = $1 AND status <> 'Cancelled'`, first)
			two, _ = a.WorkItem(context.Background(), second)
			if two.Status != "Pending" || two.WaitsFor != nil || two.RunAt == nil {
				t.Errorf("the first has ended, and the second is %+v", two)
			}
		})
	}
}

// Three versions: the second never began and gives way; the third waits for the
// first.
func TestWaitingItemThatIsReplacedPassesItsPlaceOn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.exec(`UPDATE work_items SET claim_token = 5, stage = 'Record'`)
	second := a.upload(etag2, time.Now(), "bag.tar")[0]
	third := a.upload("33333333333333333333333333333333", time.Now(), "bag.tar")[0]
	two, _ := a.WorkItem(context.Background(), second)
	three, _ := a.WorkItem(context.Background(), third)
	if two.Status != "Cancelled" || three.WaitsFor == nil || *three.WaitsFor != first {
		t.Errorf("second is %s, third waits for %v", two.Status, three.WaitsFor)
	}
}

// Whatever is typed in psql is completed or refused; no row is left in a state
// that cannot be.
func TestChangesByHand(t *testing.T) {
	t.Parallel()
	const started = `claim_token = 7, stage_started_at = now(), status = 'Started', lease_expires_at = now() + interval '1 minute', node = 'n', pid = 1, worker = 'w', attempt = 2`
	for name, tc := range map[string]struct {
		prepare string
		typed   string
		refused string // part of the text; "" if it is allowed
		want    string // stage and status afterwards
	}{
		"requeue a failed item":           {`status = 'Failed'`, `status = 'Pending'`, "", "Store Pending"},
		"to an earlier stage":             {`status = 'Failed'`, `status = 'Pending', stage = 'Receive'`, "", "Receive Pending"},
		"to a later stage":                {`status = 'Failed'`, `status = 'Pending', stage = 'Record'`, "only come to Store", ""},
		"to a stage that is none":         {`status = 'Failed'`, `status = 'Pending', stage = 'Stroe'`, "there is no stage 'Stroe'; the stages are: Receive, Validate, ", ""},
		"to a stage of another action":    {`status = 'Failed'`, `status = 'Pending', stage = 'Requested'`, "there is no stage 'Requested'; the stages of Ingest", ""},
		"release a running item":          {started, `status = 'Pending'`, "", "Store Pending"},
		"only the stage of a running one": {started, `stage = 'Validate'`, "", "Validate Pending"},
		"only the stage of a failed one":  {`status = 'Failed'`, `stage = 'Validate'`, "cannot change its stage", ""},
		"cancel":                          {started, `status = 'Cancelled'`, "", "Store Cancelled"},
		"suspend":                         {"", `status = 'Suspended'`, "", "Store Suspended"},
		"start":                           {"", `status = 'Started'`, "by hand", ""},
		"succeed":                         {"", `status = 'Success'`, "by hand", ""},
		"a cancelled item":                {`status = 'Cancelled'`, `status = 'Pending'`, "has ended", ""},
		"a finished item": {
			`claim_token = 7, status = 'Success', stage = 'Cleanup', retry = false`, `status = 'Pending', stage = 'Store'`, "has ended", "",
		},
		"a status that is none": {"", `status = 'Pendign'`, "there is no status 'Pendign'; the statuses are: Pending", ""},
		"the lease alone":       {"", `node = 'mine'`, "only the queue writes ", ""},
		"retry alone":           {"", `retry = false`, "only the queue writes ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.upload(etag1, time.Now(), "bag.tar")[0]
			a.exec(`UPDATE work_items SET claim_token = 6, stage = 'Store'`)
			if tc.prepare != "" {
				a.exec(`UPDATE work_items SET ` + tc.prepare)
			}
			a.exec(`DELETE FROM topic_messages`)
			a.exec(`DELETE FROM work_item_audit`)
			before := value[int64](a, `SELECT claim_token FROM work_items`)

			_, err := a.db.Exec(context.Background(), `UPDATE work_items SET `+tc.typed)
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("error = %v, want one about %q", err, tc.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			item, _ := a.WorkItem(context.Background(), id)
			if got := fmt.Sprint(item.Stage, " ", item.Status); got != tc.want {
				t.Errorf("item is %s, want %s", got, tc.want)
			}
			if item.ClaimToken <= before || item.Worker != nil || item.LeaseExpiresAt != nil {
				t.Errorf("a worker could still write: %+v", item)
			}
			if item.Status == "Pending" && (item.Attempt != 0 || item.NeedsAdminReview || !strings.HasPrefix(item.Note, "Requeued for "+string(item.Stage)+" by ")) {
				t.Errorf("requeued item = %+v", item)
			}
			messages := value[int](a, `SELECT count(*) FROM topic_messages`)
			if want := map[bool]int{true: 1, false: 0}[item.Status == "Pending"]; messages != want {
				t.Errorf("%d topic messages, want %d", messages, want)
			}
			audit := value[string](a, `SELECT session_user_is || ' ' || (before ->> 'stage') || ' ' || (after ->> 'status') FROM work_item_audit`)
			if want := value[string](a, `SELECT session_user::text`) + " Store " + string(item.Status); audit != want {
				t.Errorf("audit says %q, want %q", audit, want)
			}
		})
	}
}

// An old version is not let loose on what a newer one has stored.
func TestReplacedItemCannotBeRequeued(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Failed'`)
	a.upload(etag2, time.Now(), "bag.tar")
	if _, err := a.Requeue(context.Background(), first, ""); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("Requeue = %v, want a refusal that names the newer version", err)
	}
}

func TestCancelledItemStaysAsItIs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	must.Get(a.Cancel(context.Background(), id, "wrong bag"))(t)
	if _, err := a.Cancel(context.Background(), id, "again"); err != nil {
		t.Errorf("second Cancel = %v", err)
	}
	if item, _ := a.WorkItem(context.Background(), id); item.Note != "wrong bag" {
		t.Errorf("note = %q", item.Note)
	}
}

func TestItemsThatAreNotThere(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, show := a.WorkItem(context.Background(), 99)
	_, requeue := a.Requeue(context.Background(), 99, "")
	_, cancel := a.Cancel(context.Background(), 99, "")
	for what, err := range map[string]error{"show": show, "requeue": requeue, "cancel": cancel} {
		if !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s = %v, want ErrNotFound", what, err)
		}
	}
}

func TestInstitutionsThatCannotBe(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	good := record.Institution{Name: "Other", Identifier: "other.edu", ReceivingBucket: "r", RestoreBucket: "s"}
	for name, change := range map[string]func(*record.Institution){
		"taken identifier":   func(in *record.Institution) { in.Identifier = "test.edu" },
		"no domain":          func(in *record.Institution) { in.Identifier = "other" },
		"path in it":         func(in *record.Institution) { in.Identifier = "../other.edu" },
		"upper case":         func(in *record.Institution) { in.Identifier = "Other.edu" },
		"no name":            func(in *record.Institution) { in.Name = "" },
		"taken bucket":       func(in *record.Institution) { in.ReceivingBucket = a.in.ReceivingBucket },
		"one bucket for two": func(in *record.Institution) { in.RestoreBucket = in.ReceivingBucket },
	} {
		in := good
		change(&in)
		if _, err := a.AddInstitution(context.Background(), in); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	if _, err := a.AddInstitution(context.Background(), good); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// An item that was called off or given up does not go on saying that it is pending,
// by hand or not.
func TestOutcomeSaysHowTheItemEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ end, want string }{
		"cancelled":              {`SELECT cancel(id) FROM work_items`, "Ingest was cancelled"},
		"cancelled by hand":      {`UPDATE work_items SET status = 'Cancelled'`, "Ingest was cancelled"},
		"suspended by hand":      {`UPDATE work_items SET status = 'Suspended'`, "Ingest was suspended: a person has to decide"},
		"with a word of its own": {`UPDATE work_items SET status = 'Cancelled', outcome = 'Sent by mistake'`, "Sent by mistake"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.upload(etag1, time.Now(), "bag.tar")[0]
			a.exec(tc.end)
			if item := a.item(id); item.Outcome != tc.want || item.Status == "Pending" {
				t.Errorf("%s: %q, want %q", item.Status, item.Outcome, tc.want)
			}
		})
	}
}
