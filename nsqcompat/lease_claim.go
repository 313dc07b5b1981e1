package nsqcompat

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

	"github.com/farol-preservation/farol/claim"
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
	Worker            string   `json:"worker"`
	Node              string   `json:"node"`
	PID               int      `json:"pid"`
	Stages            []string `json:"stages"`
	Max               int      `json:"max"`
	MinSize           int64    `json:"min_size"`
	MaxSize           int64    `json:"max_size"`
	Institution       string   `json:"institution"`
	StorageOptions    []string `json:"storage_options"`
	Wait              float64  `json:"wait"`
	MinAge            float64  `json:"min_age"`
	ProcessingTimeout float64  `json:"processing_timeout"`
	Heartbeats        *bool    `json:"heartbeats"`
}

// check refuses what cannot be meant, or is not for the caller, and fills in what
// may be left out.
func (q *claimRequest) check(r *http.Request, c Caller) error {
	if q.Max == 0 {
		q.Max = 1
	}
	if q.Node == "" {
		q.Node, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	for _, check := range []func() error{q.checkWorker, q.checkBounds, func() error { return q.checkScope(c) }} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (q *claimRequest) checkWorker() error {
	switch {
	case !printable(q.Worker, 100):
		return badRequest("worker is %q; name who works, in 1 to 100 printable characters", q.Worker)
	case !printable(q.Node, 100) || q.PID < 0 || q.PID > math.MaxInt32:
		return badRequest("node must have 1 to 100 printable characters, and pid must be a process number")
	case q.Heartbeats != nil && *q.Heartbeats && q.ProcessingTimeout != 0:
		return badRequest("processing_timeout is for a worker that sends no heartbeats; leave it out, or say that heartbeats is false")
	case !within(q.ProcessingTimeout, 0, mostTimeout):
		return badRequest("processing_timeout is %v; it must be from 0 to %v seconds", q.ProcessingTimeout, mostTimeout)
	}
	return nil
}

func (q *claimRequest) checkBounds() error {
	switch {
	case !within(len(q.Stages), 1, mostStages) || len(q.StorageOptions) > mostStages:
		return badRequest("name 1 to %d stages, and as many storage options at most", mostStages)
	case !within(q.Max, 1, mostClaimed):
		return badRequest("max is %d; it must be from 1 to %d", q.Max, mostClaimed)
	case !within(q.MinSize, 0, mostSize) || !within(q.MaxSize, 0, mostSize) || q.MaxSize != 0 && q.MaxSize <= q.MinSize:
		return badRequest("no item has min_size %d at least and less than max_size %d", q.MinSize, q.MaxSize)
	case !within(q.MinAge, 0, mostAge):
		return badRequest("min_age is %v; it must be from 0 to %v seconds", q.MinAge, mostAge)
	case !within(q.Wait, 0, mostWait):
		return badRequest("wait is %v; it must be from 0 to %v seconds", q.Wait, mostWait)
	}
	return nil
}

func (q *claimRequest) checkScope(c Caller) error {
	if q.Institution != "" && !c.maySee(q.Institution) {
		return problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may only have items of " + c.Institution + "."}
	}
	for _, stage := range q.Stages {
		if !c.mayWork(stage) {
			return problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may not work on the stage " + stage + "."}
		}
	}
	return nil
}

func within[N cmp.Ordered](n, least, most N) bool { return n >= least && n <= most }

func (q *claimRequest) filter(c Caller) claim.Filter {
	f := claim.Filter{MinSize: q.MinSize, MaxSize: q.MaxSize, MinAge: time.Duration(q.MinAge * float64(time.Second)), StorageOptions: q.StorageOptions}
	for _, stage := range q.Stages {
		f.Stages = append(f.Stages, claim.Want{Stage: stage, Most: q.Max})
	}
	if institution := firstOf(q.Institution, c.Institution); institution != "" {
		f.Institutions = []string{institution}
	}
	return f
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (q *claimRequest) who() claim.RemoteWorker {
	return claim.RemoteWorker{Name: q.Worker, Node: q.Node, PID: q.PID, Timeout: time.Duration(q.ProcessingTimeout * float64(time.Second)), Silent: q.Heartbeats != nil && !*q.Heartbeats}
}

// knows refuses names of institutions and storage options that there are none of:
// whoever mistyped one would wait for ever.
func (a *LeaseAPI) knows(ctx context.Context, q claimRequest) error {
	if q.Institution == "" && len(q.StorageOptions) == 0 {
		return nil
	}
	var known bool
	err := a.db.QueryRow(ctx, `
		SELECT ($1 = '' OR EXISTS (SELECT FROM institutions WHERE identifier = $1))
			AND (SELECT count(o::storage_option_name) FROM unnest($2::text[]) o) >= 0`,
		q.Institution, append([]string{}, q.StorageOptions...)).Scan(&known)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "23514": // check_violation, of the option's type
		return badRequest("%s", refused.Message)
	case err != nil:
		return fmt.Errorf("look up an institution: %w", err)
	case !known:
		return badRequest("there is no institution %q", q.Institution)
	}
	return nil
}

// claimedItem is an item as its worker gets it.
type claimedItem struct {
	ID               int64     `json:"id"`
	Token            int64     `json:"token"`
	Stage            string    `json:"stage"`
	Attempt          int       `json:"attempt"`
	MaxAttempts      int       `json:"max_attempts"`
	Name             string    `json:"name"`
	Bucket           string    `json:"bucket"`
	ETag             string    `json:"etag"`
	Size             int64     `json:"size"`
	BagDate          time.Time `json:"bag_date"`
	ObjectIdentifier string    `json:"object_identifier"`
	Institution      string    `json:"institution"`
	StorageOption    string    `json:"storage_option,omitempty"`
	Lease            float64   `json:"lease"`
	LeaseExpiresAt   time.Time `json:"lease_expires_at"`
	Heartbeat        float64   `json:"heartbeat"`
	Timeout          float64   `json:"timeout,omitempty"`
}

func claimedItems(list []claim.Leased) (items []claimedItem) {
	for _, l := range list {
		items = append(items, claimedItem{
			l.ID, l.Token, l.Stage, l.Attempt, l.MaxAttempts, l.Name, l.Bucket, l.ETag, l.Size, l.BagDate, l.ObjectIdentifier, l.Institution,
			l.StorageOption, l.Lease.Seconds(), l.Expires, l.Heartbeat.Seconds(), l.Timeout.Seconds(),
		})
	}
	return items
}

// claim hands out items, once there are any. What is claimed for somebody who is
// gone by then goes back at once.
func (a *LeaseAPI) claim(w http.ResponseWriter, r *http.Request, c Caller) {
	q, err := read[claimRequest](a.in, w, r, c)
	if err == nil {
		err = q.check(r, c)
	}
	if err == nil {
		err = a.knows(r.Context(), q)
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
		answering(w)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	err = r.Context().Err()
	if err == nil {
		err = writeJSON(w, map[string]any{"items": claimedItems(got)})
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

// giveBack returns items to the queue whose worker will not hear of them.
func (a *LeaseAPI) giveBack(ctx context.Context, got []claim.Leased) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	items := make([]claim.Item, len(got))
	for i, l := range got {
		items[i] = l.Item
	}
	a.remote.Release(ctx, items, "The worker that asked for it was gone.")
}

// line is those that wait for the same items. Only who has the baton asks the
// database; the others stand behind it, and Go serves them in their order.
type line struct {
	baton chan struct{}
	long  int
}

// await claims items, and waits for some if there are none.
func (a *LeaseAPI) await(ctx context.Context, f claim.Filter, n int, who claim.RemoteWorker, wait time.Duration) ([]claim.Leased, error) {
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
	select {
	case <-l.baton:
	case <-ctx.Done():
		return nil, nil
	case <-a.o.Stop:
		return nil, nil
	}
	defer func() { l.baton <- struct{}{} }()
	look, stop := a.engine.Wakes(ctx)
	defer stop()
	for {
		got, err := a.remote.Claim(ctx, f, n, who)
		if len(got) > 0 || err != nil && ctx.Err() == nil {
			return got, err
		}
		select {
		case <-look:
		case <-ctx.Done():
			return nil, nil
		case <-a.o.Stop:
			return nil, nil
		}
	}
}

// join puts a claim into the line of those that want the same.
func (a *LeaseAPI) join(f claim.Filter) (l *line, leave func(), err error) {
	f.Stages = slices.Clone(f.Stages)
	for i := range f.Stages {
		f.Stages[i].Most = 0 // however many each wants
	}
	name, err := json.Marshal(f)
	if err != nil {
		return nil, nil, fmt.Errorf("name the line: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting >= a.o.MaxWaiting {
		return nil, nil, problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "Too many wait for items already. Try again."}
	}
	key := string(name)
	if l = a.lines[key]; l == nil {
		l = &line{baton: make(chan struct{}, 1)}
		l.baton <- struct{}{}
		a.lines[key] = l
	}
	l.long++
	a.waiting++
	return l, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waiting--
		if l.long--; l.long == 0 {
			delete(a.lines, key)
		}
	}, nil
}
