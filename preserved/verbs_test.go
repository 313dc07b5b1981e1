package preserved_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
	registryfixity "github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/requests"
)

// verb is a kind of step: how often it is drawn, and below what its numbers are.
type verb struct {
	name  string
	often int
	most  []int
	do    func(*life, step)
}

func verbs() []verb {
	return []verb{
		{"deposit", 5, []int{2, 4}, (*life).deposit},     // object, version
		{"run", 6, []int{12, 2}, (*life).run},            // attempts; 0: until all is at rest; worker
		{"kill", 4, []int{70, 2}, (*life).kill},          // event of the next attempt, worker
		{"deny", 2, []int{2, 2}, (*life).denied},         // target, worker
		{"restage", 3, []int{12, 10}, (*life).requeue},   // item, stage; 0: its own
		{"ask", 5, []int{2, 4}, (*life).ask},             // object, file; 0: the object
		{"approve", 5, []int{5}, (*life).approve},        // who
		{"withdraw", 2, []int{5}, (*life).withdraw},      // who
		{"cancel", 3, []int{12}, (*life).cancel},         // item
		{"cancel-at", 3, []int{25, 2}, (*life).cancelAt}, // request of the next attempt of a deletion, worker
		{"accept", 2, nil, (*life).accept},               //
		{"lose", 2, []int{2, 3, 2}, (*life).lose},        // object, file, target
		{"spoil", 2, []int{2, 3, 2}, (*life).spoil},      // object, file, target
		{"check", 3, []int{2}, (*life).check},            // object
		{"repair", 2, nil, (*life).repair},               //
		{"restore", 3, []int{2, 4}, (*life).restore},     // object, file; 0: the object
		{"flip", 1, []int{2}, (*life).flip},              // worker
		{"retain", 1, []int{2}, (*life).retain},          // whether files must be kept
		{"age", 1, []int{2}, (*life).age},                // object
	}
}

// deposit uploads a bag, an hour after the one before.
func (l *life) deposit(s step) {
	name := l.names[s.at(0)%len(l.names)]
	content, files := bagOf(l.T, name, s.at(1)%len(versions()))
	for path, text := range files {
		l.contents[digestOf(text)] = text
		files[path] = text
	}
	testenv.Scene(l.T, l.DB, `UPDATE work_items SET bag_date = bag_date - interval '1 hour' WHERE object_identifier = $1`, l.object(s.at(0)))
	l.PutRaw(name+".tar", content)
	ctx := context.Background()
	o, err := l.Receiving.Head(ctx, name+".tar")
	var ids []int64
	l.touched[s.at(0)%len(l.names)] = true
	if err == nil {
		ids, err = l.Deps.Registry.CreateIngests(ctx, l.In, o.LastModified, []registry.Upload{{Key: name + ".tar", ETag: o.ETag, Size: o.Size, LastModified: o.LastModified}})
	}
	if err != nil {
		l.T.Fatal(err)
	}
	for _, id := range ids {
		l.bags[id] = files
	}
}

// due finds an item of ours that can be claimed, once time has passed; false if there is none.
func (l *life) due(action string) (a registry.Action, stage registry.Stage, ok bool) {
	ctx := context.Background()
	err := l.DB.QueryRow(ctx, `SELECT action, stage FROM work_items WHERE object_identifier = ANY ($1) AND retry AND status = 'Pending' AND waits_for IS NULL
		AND ($2 = '' OR action LIKE $2) ORDER BY run_at, id LIMIT 1`, l.ours(), action).Scan(&a, &stage)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, stage, false
	}
	if err == nil {
		_, err = l.DB.Exec(ctx, `UPDATE work_items SET run_at = now() WHERE object_identifier = ANY ($1) AND retry AND status = 'Pending' AND waits_for IS NULL
			AND action = $2 AND run_at > now()`, l.ours(), a)
	}
	if err != nil {
		l.T.Fatal(err)
	}
	return a, stage, true
}

// attempt has a worker claim an item that is due, and take it through its stage.
func (l *life) attempt(worker int, action string, p plan) bool {
	worker %= len(l.workers)
	a, stage, ok := l.due(action)
	if !ok {
		return false
	}
	for try := range 2 {
		items, err := l.workers[worker].engine.Claim(context.Background(), claim.Filter{Action: a, Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
		if err != nil {
			l.T.Fatal(err)
		}
		if len(items) == 0 {
			if try == 0 { // it was not told that the item is due
				l.workers[worker].start(l.world)
			}
			continue
		}
		l.process(worker, items[0], p)
		if a != registry.Ingest || slices.Contains([]registry.Stage{registry.ReingestCheck, registry.Record, registry.Cleanup}, stage) {
			l.observe(items[0].ID) // other stages write no record
		}
		return true
	}
	l.T.Fatalf("an item is due at %s and nobody can claim it", stage)
	return false
}

func (l *life) run(s step) {
	most := s.at(0)
	if most == 0 {
		most = 60
	}
	for range most {
		if len(l.verdict) > 0 || !l.attempt(s.at(1), "", plan{}) {
			return
		}
	}
}

func (l *life) kill(s step)   { l.attempt(s.at(1), "", plan{killAt: 1 + s.at(0)}) }
func (l *life) denied(s step) { l.attempt(s.at(1), "", plan{deny: l.buckets[targets()[s.at(0)%2]]}) }

// item is one of ours that is in the queue's table; 0 if there is none.
func (l *life) item(n int) int64 {
	return pipelinetest.Value[int64](l, `SELECT coalesce((SELECT ids[1 + $2 % cardinality(ids)] FROM (
		SELECT array_agg(id ORDER BY id DESC) AS ids FROM work_items WHERE object_identifier = ANY ($1)) i), 0)`, l.ours(), n)
}

// do runs a statement that the database may refuse.
func (l *life) do(sql string, args ...any) {
	_, err := l.DB.Exec(context.Background(), sql, args...)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && slices.Contains([]string{"23514", "23505"}, refusal.Code) {
		return
	}
	if err != nil {
		l.T.Fatalf("%s: %v", sql, err)
	}
}

func (l *life) requeue(s step) {
	id := l.item(s.at(0))
	if id == 0 {
		return
	}
	l.do(`SELECT requeue($1, (SELECT CASE WHEN action = 'Ingest' AND $2 > 0 THEN (
		SELECT g.stage FROM stage_settings g WHERE g.action = 'Ingest' ORDER BY g.ordinal OFFSET $2 - 1 LIMIT 1) END FROM work_items WHERE id = $1))`, id, s.at(1)%10)
}

func (l *life) cancel(s step) {
	if id := l.item(s.at(0)); id != 0 {
		l.do(`SELECT cancel($1, 'the model cancels it') FROM work_items WHERE id = $1 AND status IN ('Pending', 'Started', 'Failed', 'Suspended')`, id)
	}
}

// cancelAt has a person cancel a deletion while a worker is at it.
func (l *life) cancelAt(s step) {
	l.attempt(s.at(1), "Delete", plan{before: func(n int, _ *http.Request) {
		if n == 1+s.at(0) {
			l.do( //nolint:contextcheck // the request may have ended
				`SELECT cancel(id, 'the model cancels it') FROM work_items WHERE object_identifier = ANY ($1) AND action = 'Delete' AND status = 'Started'`, l.ours())
		}
	}})
}

// may fails the history unless an act was done, or refused by a rule.
func (l *life) may(err error) (done bool) {
	if err != nil && !errors.Is(err, registry.ErrRefused) && !errors.Is(err, registry.ErrNotFound) {
		l.T.Fatal(err)
	}
	return err == nil
}

func (l *life) ask(s step) {
	identifier := l.object(s.at(0))
	if n := s.at(1) % 4; n > 0 {
		identifier = l.file(s.at(0), n-1)
	}
	_, err := requests.In(l.Deps.Registry).RequestDeletion(context.Background(), requester, []string{identifier})
	l.may(err)
}

// request is the newest request of ours, whose state is one of some; 0 if there is none.
func (l *life) request(open string) int64 {
	return pipelinetest.Value[int64](l, `SELECT coalesce(max(d.id), 0) FROM deletion_requests d WHERE (`+open+`) AND (
		EXISTS (SELECT FROM deletion_requests_intellectual_objects n JOIN intellectual_objects o ON o.id = n.intellectual_object_id
			WHERE n.deletion_request_id = d.id AND o.identifier = ANY ($1))
		OR EXISTS (SELECT FROM deletion_requests_generic_files n JOIN generic_files f ON f.id = n.generic_file_id
			JOIN intellectual_objects o ON o.id = f.intellectual_object_id WHERE n.deletion_request_id = d.id AND o.identifier = ANY ($1)))`, l.ours())
}

func (l *life) approve(s step) {
	id := l.request(`approved_at IS NULL AND cancelled_at IS NULL`)
	if id == 0 {
		return
	}
	who := everybody()[s.at(0)%len(everybody())]
	_, err := requests.In(l.Deps.Registry).ApproveDeletion(context.Background(), id, who, "the model")
	if l.may(err) && !slices.Contains([]string{approver, third}, who) {
		l.wrong("approved-by-one", "%s approved the deletion request %d of %s", who, id, requester)
	}
}

func (l *life) withdraw(s step) {
	id := l.request(`cancelled_at IS NULL`)
	if id == 0 {
		return
	}
	who := everybody()[s.at(0)%len(everybody())]
	_, err := requests.In(l.Deps.Registry).CancelDeletion(context.Background(), id, who, "the model")
	if l.may(err) && who == outsider {
		l.wrong("cancelled-by-outsider", "%s cancelled the deletion request %d", who, id)
	}
}

func (l *life) accept(step) {
	id := pipelinetest.Value[int64](l, `SELECT coalesce(max(id), 0) FROM work_items WHERE object_identifier = ANY ($1) AND action = 'Delete' AND status = 'Suspended'`, l.ours())
	if id == 0 {
		return
	}
	if _, err := requests.In(l.Deps.Registry).AcceptMissing(context.Background(), id, staff); err != nil {
		l.T.Fatal(err)
	}
	l.do(`SELECT requeue($1)`, id)
}

// copyOf is where a copy of a file is that is on record.
func (l *life) copyOf(s step) (bucket, key string) {
	target := targets()[s.at(2)%2]
	err := l.DB.QueryRow(context.Background(), `SELECT s.bucket, s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier = $1 AND f.state = 'A' AND s.target = $2`, l.file(s.at(0), s.at(1)), target).Scan(&bucket, &key)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		l.T.Fatal(err)
	}
	return bucket, key
}

func (l *life) lose(s step) {
	if bucket, key := l.copyOf(s); key != "" {
		l.write(bucket, key, nil)
		l.harmed[bucket+"/"+key] = true
	}
}

func (l *life) spoil(s step) {
	if bucket, key := l.copyOf(s); key != "" {
		if h := l.read(bucket, key); h.there && len(h.body) > 0 {
			body := slices.Clone(h.body)
			body[len(body)/2] ^= 1
			l.write(bucket, key, body)
			l.harmed[bucket+"/"+key] = true
		}
	}
}

// check has all copies of an object read that are on record as those of active files.
func (l *life) check(s step) { l.checked(l.object(s.at(0))) }

func (l *life) checked(object string) {
	ctx := context.Background()
	there, err := registryfixity.In(l.Deps.Registry).Request(ctx, object, "", true)
	if !l.may(err) || len(there) == 0 {
		return
	}
	// The workers of cancelled deletions have stopped: what was held for them can be read now.
	testenv.Scene(l.T, l.DB, `UPDATE fixity_checks c SET run_at = now() FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE c.storage_record_id = s.id AND f.identifier LIKE $1 || '/%' AND c.worker LIKE 'item %'`, object)
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- l.checker.Run(ctx) }()
	testenv.Eventually(l.T, "copies to be checked", func() bool {
		return pipelinetest.Value[bool](l, `SELECT NOT EXISTS (SELECT FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
			JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE $1 || '/%' AND (c.requested OR c.worker <> ''))`, object)
	})
	stop()
	if err := <-ran; err != nil {
		l.T.Fatal(err)
	}
	l.saw(object)
}

// saw says that the copies of an object were read: what was bad is known now.
func (l *life) saw(object string) {
	for _, c := range l.copiesOf(object) {
		delete(l.harmed, c.bucket+"/"+c.key)
	}
}

func (l *life) repair(step) {
	list, err := registryfixity.In(l.Deps.Registry).BadCopies(context.Background(), "", 0, 0, 1000)
	if err != nil {
		l.T.Fatal(err)
	}
	for _, b := range list {
		if slices.ContainsFunc(l.ours(), func(o string) bool { return strings.HasPrefix(b.File, o+"/") }) {
			l.bad.Repair(context.Background(), b)
			l.forgetAll()
		}
	}
}

func (l *life) restore(s step) {
	identifier := l.object(s.at(0))
	if n := s.at(1) % 4; n > 0 {
		identifier = l.file(s.at(0), n-1)
	}
	_, err := requests.In(l.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{Identifier: identifier, File: s.at(1)%4 > 0})
	l.may(err)
}

// flip changes a byte of what a restoration has staged, before it is copied to where it is
// delivered.
func (l *life) flip(s step) {
	done := false
	l.attempt(s.at(0), "Restore%", plan{before: func(_ int, r *http.Request) {
		source := r.Header.Get("X-Amz-Copy-Source")
		bucket, key, ok := strings.Cut(strings.TrimPrefix(source, "/"), "/")
		if !ok || done {
			return
		}
		done = true
		l.flipOnDisk(bucket, key)
	}})
}

func (l *life) retain(s step) { l.keepFor(30 * (s.at(0) % 2)) }

// keepFor sets for how many days files must be kept.
func (l *life) keepFor(days int) {
	l.Exec(fmt.Sprintf(`UPDATE storage_options SET retention_days = %d WHERE name = 'Standard' AND retention_days <> %[1]d`, days))
}

// age makes an object and its files older than any retention.
func (l *life) age(s step) {
	testenv.Scene(l.T, l.DB, `WITH o AS (UPDATE intellectual_objects SET created_at = created_at - interval '1 year' WHERE identifier = $1)
		UPDATE generic_files SET created_at = created_at - interval '1 year' WHERE identifier LIKE $1 || '/%'`, l.object(s.at(0)))
}
