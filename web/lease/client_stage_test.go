package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func newClient(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(o.HTTP.CloseIdleConnections)
	c := must.Get(client.New(url, o))(t)
	return c
}

// state is where an item is and how its claims have ended.
func (l *leases) state(id int64) (state string) {
	l.t.Helper()
	must.Do(l.t, l.db.QueryRow(context.Background(), `SELECT stage || ' ' || status || ' ' || note || ': '
			|| (SELECT coalesce(string_agg(concat_ws(' ', outcome, nullif(error_code, '')), ', ' ORDER BY claim_token), '') FROM attempts WHERE work_item_id = w.id)
		FROM work_items w WHERE id = $1`, id).Scan(&state))
	return state
}

// A worker of the client's on a line that loses every third answer: what the function
// says of an item is what becomes of it, once.
func TestClientWorksAStageThroughTrouble(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET lease = '1500 milliseconds', heartbeat = '500 milliseconds',
		backoff_first = '50 milliseconds', backoff_most = '100 milliseconds', max_attempts = 1000 WHERE stage = 'Virus Scan'`)
	c := newClient(t, testenv.LossyServer(t, l.url), client.Options{})
	ids := map[string]int64{}
	for _, what := range []string{"good", "bad", "again"} {
		for n := range 4 {
			ids[fmt.Sprint(what, n)] = l.put("test.edu", int64(len(ids)+1))
		}
	}
	of := map[int64]string{}
	for what, id := range ids {
		of[id] = strings.TrimRight(what, "0123456789")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var seen sync.Map
	var running sync.WaitGroup
	running.Go(func() {
		err := c.WorkStage(ctx, client.StageWorker{
			Claim: client.ClaimRequest{Worker: "test", Stages: []string{"Virus Scan"}}, Slots: 3,
		}, func(_ context.Context, i client.Item) (string, error) {
			switch _, again := seen.LoadOrStore(i.ID, true); {
			case of[i.ID] == "bad":
				return "", client.Refused("virus-found", "It has a virus.")
			case of[i.ID] == "again" && !again:
				return "", errors.New("the scanner does not answer")
			}
			return fmt.Sprintf("%s of %s is clean.", i.Name, i.Institution), nil
		})
		if err != nil {
			t.Errorf("WorkStage = %v", err)
		}
	})
	want := map[string]string{
		"good": "Reingest Check Pending bag %d.tar of test.edu is clean.: done", "bad": "Virus Scan Failed It has a virus.: fatal virus-found",
		"again": "Reingest Check Pending bag %d.tar of test.edu is clean.: transient transient, done",
	}
	for id, what := range of {
		w := want[what]
		if strings.Contains(w, "%d") {
			w = fmt.Sprintf(w, id-1)
		}
		testenv.Eventually(t, fmt.Sprintf("item %d (%s) is %q", id, what, w), func() bool {
			got := l.state(id)
			// A claim whose answer was lost lapses or is given back, and another follows.
			got = strings.ReplaceAll(strings.ReplaceAll(got, "released released, ", ""), "lease expired lease-expired, ", "")
			return got == w
		})
	}
	cancel()
	running.Wait()
}

// renewed makes a lease short and waits for a heartbeat that extends it.
func (l *leases) renewed(id, token int64) {
	l.t.Helper()
	testenv.Exec(l.t, l.db, `UPDATE work_items SET lease_expires_at = now() + interval '5 minutes' WHERE id = $1`, id)
	testenv.Eventually(l.t, "a heartbeat that extends the lease", func() bool {
		var renewed bool
		err := l.db.QueryRow(l.t.Context(), `SELECT claim_token = $2 AND lease_expires_at > now() + interval '30 minutes' FROM work_items WHERE id = $1`,
			id, token).Scan(&renewed)
		return err == nil && renewed
	})
}

// A worker that is asked to stop releases its items; one that has lost an item stops the work.
func TestClientStopsWorkThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET lease = '1 hour', heartbeat = '300 milliseconds' WHERE stage = 'Virus Scan'`)
	c := newClient(t, l.url, client.Options{})
	id := l.put("test.edu", 1)
	ctx, cancel := context.WithCancel(t.Context())
	begun, lost := make(chan client.Item, 1), make(chan error, 10)
	var running sync.WaitGroup
	running.Go(func() {
		err := c.WorkStage(ctx, client.StageWorker{
			Claim:  client.ClaimRequest{Worker: "test", Stages: []string{"Virus Scan"}},
			Failed: func(_ client.Item, err error) { lost <- err },
		}, func(ctx context.Context, i client.Item) (string, error) {
			begun <- i
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		if err != nil {
			t.Errorf("WorkStage = %v", err)
		}
	})
	first := <-begun
	l.renewed(id, first.Token)
	testenv.Exec(t, l.db, `SELECT requeue($1::bigint)`, id)
	if err := <-lost; !errors.Is(err, client.ErrLost) {
		t.Errorf("Failed was called with %v, want ErrLost", err)
	}
	second := <-begun
	if second.ID != id || second.Token <= first.Token {
		t.Errorf("then it got %+v", second)
	}
	cancel()
	running.Wait()
	if got := l.state(id); !strings.HasPrefix(got, "Virus Scan Pending ") || !strings.HasSuffix(got, "released released") {
		t.Errorf("the item is %q, want it given back", got)
	}
	var answer *client.Error
	if err := c.Finish(t.Context(), second, "late"); !errors.Is(err, client.ErrLost) || !errors.As(err, &answer) || answer.Code != "ended" {
		t.Errorf("a late end: %v", err)
	}
	err := c.WorkStage(t.Context(), client.StageWorker{Claim: client.ClaimRequest{Worker: "test", Stages: []string{"No Stage"}}}, nil)
	if !errors.As(err, &answer) || answer.Code != "no-such-stage" {
		t.Errorf("a stage that there is not: %v", err)
	}
}

// A worker that cannot reach its server stops its work before the item is another's.
func TestClientStopsWorkThatItCannotRenew(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET lease = '3 seconds', heartbeat = '1 second' WHERE stage = 'Virus Scan'`)
	c := newClient(t, l.url, client.Options{RetryFor: time.Hour, AnswerTimeout: time.Hour})
	l.put("test.edu", 1)
	ctx, cancel := context.WithCancel(t.Context())
	lost := make(chan error, 100)
	var worked time.Duration
	var running sync.WaitGroup
	running.Go(func() {
		err := c.WorkStage(ctx, client.StageWorker{
			Claim:  client.ClaimRequest{Worker: "test", Stages: []string{"Virus Scan"}},
			Failed: func(_ client.Item, err error) { lost <- err },
		}, func(ctx context.Context, _ client.Item) (string, error) {
			began := time.Now()
			go l.db.Close() // the server cannot do anything any more; it waits for calls in progress
			<-ctx.Done()
			worked = time.Since(began)
			return "", context.Cause(ctx)
		})
		if err != nil {
			t.Errorf("WorkStage = %v", err)
		}
	})
	err := <-lost
	cancel()
	running.Wait()
	if !errors.Is(err, client.ErrLost) || worked > testenv.AtOnce {
		t.Errorf("it worked for %v, and Failed was called with %v; want ErrLost and the end of the work by the lease, not by an answer", worked, err)
	}
}

// One call that is never answered does not lose an item: there is time for another.
func TestClientRenewsThroughASilence(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET lease = '1 hour', heartbeat = '1 second' WHERE stage = 'Virus Scan'`)
	c := newClient(t, testenv.SilentServer(t, l.url, "/v1/heartbeat", 1), client.Options{AnswerTimeout: time.Hour})
	id := l.put("test.edu", 1)
	ctx, cancel := context.WithCancel(t.Context())
	begun, enough := make(chan client.Item, 1), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		err := c.WorkStage(ctx, client.StageWorker{
			Claim:  client.ClaimRequest{Worker: "test", Stages: []string{"Virus Scan"}},
			Failed: func(_ client.Item, err error) { t.Errorf("Failed was called with %v", err) },
		}, func(working context.Context, i client.Item) (string, error) {
			defer cancel()
			begun <- i
			select {
			case <-enough:
			case <-working.Done():
			}
			return "clean", context.Cause(working)
		})
		if err != nil {
			t.Errorf("WorkStage = %v", err)
		}
	})
	l.renewed(id, (<-begun).Token)
	close(enough)
	running.Wait()
	if got := l.state(id); got != "Reingest Check Pending clean: done" {
		t.Errorf("the item is %q", got)
	}
}

// However much a function has to say, or little, its item ends.
func TestClientEndsItemsWhateverIsSaid(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET backoff_first = '1 hour', backoff_most = '1 hour' WHERE stage = 'Virus Scan'`)
	c := newClient(t, l.url, client.Options{})
	long := strings.Repeat("ü", 5000)
	says := []func() (string, error){
		func() (string, error) { return long, nil },
		func() (string, error) { return "", client.Refused("bad", long) },
		func() (string, error) { return "", client.Refused("bad", "") },
		func() (string, error) { return "", errors.New(long) },
		func() (string, error) { return "", errors.New("") },
	}
	first := l.put("test.edu", 1)
	for range says[1:] {
		l.put("test.edu", 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := c.WorkStage(ctx, client.StageWorker{
			Claim:  client.ClaimRequest{Worker: "test", Stages: []string{"Virus Scan"}},
			Failed: func(_ client.Item, err error) { t.Errorf("Failed was called with %.200v", err) },
		}, func(_ context.Context, i client.Item) (string, error) { return says[i.ID-first]() })
		if err != nil {
			t.Errorf("WorkStage = %v", err)
		}
	})
	cut := strings.Repeat("ü", 3999) + "…"
	for n, want := range []string{
		"Reingest Check Pending " + cut + ": done", "Virus Scan Failed " + cut + ": fatal bad", "Virus Scan Failed The worker gave no reason.: fatal bad",
		"Virus Scan Pending " + cut + ": transient transient", "Virus Scan Pending The worker gave no reason.: transient transient",
	} {
		testenv.Eventually(t, fmt.Sprintf("item %d is %.60q", n, want), func() bool { return l.state(first+int64(n)) == want })
	}
	cancel()
	running.Wait()
}
