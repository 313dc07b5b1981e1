package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// Bounds of what one claim may ask for.
const (
	mostWait    = 300.0                   // seconds
	mostTimeout = 30 * 24 * 3600.0        // seconds; the lease is three times that
	mostAge     = 100 * 365 * 24 * 3600.0 // seconds
	mostClaimed = 100                     // items
	mostStages  = 20                      // or storage options
	mostSize    = int64(1) << 53          // bytes
)

type claimRequest struct {
	Worker            string           `json:"worker"`
	Node              string           `json:"node"`
	PID               int              `json:"pid"`
	Stages            []registry.Stage `json:"stages"`
	Max               int              `json:"max"`
	MinSize           int64            `json:"min_size"`
	MaxSize           int64            `json:"max_size"`
	Institution       string           `json:"institution"`
	StorageOptions    []string         `json:"storage_options"`
	Wait              float64          `json:"wait"`
	MinAge            float64          `json:"min_age"`
	ProcessingTimeout float64          `json:"processing_timeout"`
	Heartbeats        *bool            `json:"heartbeats"`
}

// check refuses what is out of bounds or not for the caller, and fills in defaults.
func (q *claimRequest) check(r *http.Request, c access.Caller) error {
	if q.Max == 0 {
		q.Max = 1
	}
	if q.Node == "" {
		q.Node, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	return cmp.Or(q.checkWorker(), q.checkBounds(), q.checkScope(c))
}

func (q *claimRequest) checkWorker() error {
	switch {
	case !printable(q.Worker, 100):
		return request.Errorf("worker is %q; it must be a name of 1 to 100 printable characters", q.Worker)
	case !printable(q.Node, 100) || q.PID < 0 || q.PID > math.MaxInt32:
		return request.Errorf("node must have 1 to 100 printable characters, and pid must be a process number")
	case q.Heartbeats != nil && *q.Heartbeats && q.ProcessingTimeout != 0:
		return request.Errorf("processing_timeout is for a worker that sends no heartbeats; leave it out, or set heartbeats to false")
	case !within(q.ProcessingTimeout, 0, mostTimeout):
		return request.Errorf("processing_timeout is %v; it must be from 0 to %v seconds", q.ProcessingTimeout, mostTimeout)
	}
	return nil
}

func (q *claimRequest) checkBounds() error {
	switch {
	case !within(len(q.Stages), 1, mostStages) || len(q.StorageOptions) > mostStages:
		return request.Errorf("name 1 to %d stages, and no more storage options than that", mostStages)
	case !within(q.Max, 1, mostClaimed):
		return request.Errorf("max is %d; it must be from 1 to %d", q.Max, mostClaimed)
	case !within(q.MinSize, 0, mostSize) || !within(q.MaxSize, 0, mostSize) || q.MaxSize != 0 && q.MaxSize <= q.MinSize:
		return request.Errorf("min_size %d must be less than max_size %d", q.MinSize, q.MaxSize)
	case !within(q.MinAge, 0, mostAge):
		return request.Errorf("min_age is %v; it must be from 0 to %v seconds", q.MinAge, mostAge)
	case !within(q.Wait, 0, mostWait):
		return request.Errorf("wait is %v; it must be from 0 to %v seconds", q.Wait, mostWait)
	}
	return nil
}

func (q *claimRequest) checkScope(c access.Caller) error {
	if q.Institution != "" && !c.MaySee(q.Institution) {
		return reply.Problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may only claim items of " + c.Institution + "."}
	}
	for _, stage := range q.Stages {
		if !c.MayProcess(stage) {
			return reply.Problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may not process the stage " + string(stage) + "."}
		}
	}
	return nil
}

func within[N cmp.Ordered](n, least, most N) bool { return n >= least && n <= most }

func (q *claimRequest) filter(c access.Caller) claim.Filter {
	f := claim.Filter{MinSize: q.MinSize, MaxSize: q.MaxSize, MinAge: time.Duration(q.MinAge * float64(time.Second)), StorageOptions: q.StorageOptions}
	for _, stage := range q.Stages {
		f.Stages = append(f.Stages, claim.Want{Stage: stage, Most: q.Max})
	}
	if institution := cmp.Or(q.Institution, c.Institution); institution != "" {
		f.Institutions = []string{institution}
	}
	return f
}

func (q *claimRequest) who() remote.Worker {
	return remote.Worker{Name: q.Worker, Node: q.Node, PID: q.PID, Timeout: time.Duration(q.ProcessingTimeout * float64(time.Second)), Silent: q.Heartbeats != nil && !*q.Heartbeats}
}

const knownNamesSQL = `
SELECT ($1 = '' OR EXISTS (SELECT FROM institutions WHERE identifier = $1))
	AND (SELECT count(o::storage_option_name) FROM unnest($2::text[]) o) >= 0`

// checkNames refuses unknown institutions and storage options: a caller who mistyped
// one would wait forever.
func (a *API) checkNames(ctx context.Context, q claimRequest) error {
	if q.Institution == "" && len(q.StorageOptions) == 0 {
		return nil
	}
	var known bool
	err := a.db.QueryRow(ctx, knownNamesSQL, q.Institution, append([]string{}, q.StorageOptions...)).Scan(&known)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "23514": // check_violation, of the option's type
		return request.Errorf("%s", refused.Message)
	case err != nil:
		return fmt.Errorf("look up an institution: %w", err)
	case !known:
		return request.Errorf("there is no institution %q", q.Institution)
	}
	return nil
}

// claimedItem is an item as its worker gets it.
type claimedItem struct {
	ID               int64          `json:"id"`
	Token            int64          `json:"token"`
	Stage            registry.Stage `json:"stage"`
	Attempt          int            `json:"attempt"`
	MaxAttempts      int            `json:"max_attempts"`
	Name             string         `json:"name"`
	Bucket           string         `json:"bucket"`
	ETag             string         `json:"etag"`
	Size             int64          `json:"size"`
	BagDate          time.Time      `json:"bag_date"`
	ObjectIdentifier string         `json:"object_identifier"`
	Institution      string         `json:"institution"`
	StorageOption    string         `json:"storage_option,omitempty"`
	Lease            float64        `json:"lease"`
	LeaseExpiresAt   time.Time      `json:"lease_expires_at"`
	Heartbeat        float64        `json:"heartbeat"`
	Timeout          float64        `json:"timeout,omitempty"`
}

func claimedItems(list []remote.Leased) (items []claimedItem) {
	for _, l := range list {
		items = append(items, claimedItem{
			l.ID, l.Token, l.Stage, l.Attempt, l.MaxAttempts, l.Name, l.Bucket, l.ETag, l.Size, l.BagDate, l.ObjectIdentifier, l.Institution,
			l.StorageOption, l.Lease.Seconds(), l.Expires, l.Heartbeat.Seconds(), l.Timeout.Seconds(),
		})
	}
	return items
}

// claim hands out items once there are any. Items claimed for a caller who is gone by
// then are released at once.
func (a *API) claim(w http.ResponseWriter, r *http.Request, c access.Caller) {
	q, err := read[claimRequest](a.budget, w, r, c)
	if err == nil {
		err = q.check(r, c)
	}
	if err == nil {
		err = a.checkNames(r.Context(), q)
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	out := http.NewResponseController(w)
	wait := time.Duration(q.Wait * float64(time.Second))
	got, err := a.await(r.Context(), q.filter(c), q.Max, q.who(), wait)
	switch {
	case err != nil:
		a.refuse(w, r, err)
		return
	case len(got) == 0:
		reply.NoContent(w)
		return
	}
	err = r.Context().Err()
	if err == nil {
		err = reply.JSON(w, http.StatusOK, map[string]any{"items": claimedItems(got)})
	}
	if err == nil {
		if err = out.Flush(); errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
	}
	if err != nil {
		a.giveBack(r.Context(), got)
	}
}

// giveBack releases items that did not reach their worker.
func (a *API) giveBack(ctx context.Context, got []remote.Leased) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	items := make([]claim.Item, len(got))
	for i, l := range got {
		items[i] = l.Item
	}
	a.engine.Release(ctx, items, "The worker that requested it had disconnected.")
}

// waitlist is the claims that wait for the same items. Only the one whose turn it is queries
// the database; the others wait for their turn, in their order.
type waitlist struct {
	turn   *semaphore.Weighted
	length int
}

// await claims items, and waits for some if there are none.
func (a *API) await(ctx context.Context, f claim.Filter, n int, who remote.Worker, wait time.Duration) ([]remote.Leased, error) {
	got, err := a.remote.Claim(ctx, f, n, who)
	if err != nil || len(got) > 0 || wait == 0 {
		return got, err
	}
	l, leave, err := a.join(f)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(a.o.Stop, cancel)() //nolint:contextcheck // it is the end of the server
	if l.turn.Acquire(ctx, 1) != nil {
		return nil, nil
	}
	defer l.turn.Release(1)
	wakes, stop := a.engine.Wakes(ctx, f)
	defer stop()
	for {
		got, err := a.remote.Claim(ctx, f, n, who)
		if len(got) > 0 || err != nil && ctx.Err() == nil {
			return got, err
		}
		select {
		case <-wakes.C:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// join puts a claim on the waitlist of its filter.
func (a *API) join(f claim.Filter) (l *waitlist, leave func(), err error) {
	f.Stages = slices.Clone(f.Stages)
	for i := range f.Stages {
		f.Stages[i].Most = 0 // claims for more and for fewer items wait together
	}
	name, err := json.Marshal(f)
	if err != nil {
		return nil, nil, fmt.Errorf("name the filter: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting >= a.o.MaxWaiting {
		return nil, nil, reply.Problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "Too many calls are waiting for items. Try again."}
	}
	key := string(name)
	if l = a.waits[key]; l == nil {
		l = &waitlist{turn: semaphore.NewWeighted(1)}
		a.waits[key] = l
	}
	l.length++
	a.waiting++
	return l, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waiting--
		if l.length--; l.length == 0 {
			delete(a.waits, key)
		}
	}, nil
}
