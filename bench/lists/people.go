package lists

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/web/permission"
)

// people read lists: a fifth of them are staff, the others of institutions of all sizes.
type people struct {
	callers []*caller
	items   map[scope][]int64 // IDs of items that those of a scope may see
}

// caller is one of them, with a token.
type caller struct {
	name   string
	scope  scope
	may    []permission.Permission
	token  string
	cookie string // of a session, while it opens pages; "": it asks the API
	client *http.Client
	visits [][]visit // of each list and place those that there are
	upto   []float64 // of each of them the sum of the weights up to it
}

// answer is as much of an answer as matters here.
type answer struct {
	Next *string `json:"next"`
}

// ranks are the institutions that people are of, by their size.
func ranks() []int64 { return []int64{1, 1, 2, 3, 5, 8, 12, 20, 30, 40, 50, 60} }

func (s *servers) people(ctx context.Context, c config) (*people, error) {
	p := &people{items: map[scope][]int64{}}
	r := registry.New(s.DB)
	if _, err := s.DB.Exec(ctx, `DELETE FROM api_tokens WHERE name LIKE 'bench %'`); err != nil {
		return nil, fmt.Errorf("delete the tokens of an earlier run: %w", err)
	}
	for n := range c.callers {
		in := scope(0)
		if n%5 > 0 {
			in = scope(min(ranks()[n%len(ranks())], c.sizes.Institutions))
		}
		one, err := s.caller(ctx, r, n, in)
		if err != nil {
			return nil, err
		}
		p.callers = append(p.callers, one)
	}
	return p, nil
}

func (s *servers) caller(ctx context.Context, r *registry.Registry, n int, in scope) (*caller, error) {
	c := &caller{scope: in, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	var user int64
	var role string
	err := s.DB.QueryRow(ctx, `
		SELECT id, email, role FROM users WHERE coalesce(institution_id, 0) = $1 AND (institution_id IS NOT NULL OR email LIKE 'staff%')
		ORDER BY id OFFSET $2 % CASE $1 WHEN 0 THEN 12 ELSE 2 END LIMIT 1`, int64(in), n/5).Scan(&user, &c.name, &role)
	if err != nil {
		return nil, fmt.Errorf("look up a person: %w", err)
	}
	c.may = permission.Of(role, in != 0)
	t := record.Token{Name: fmt.Sprint("bench ", n), UserID: user}
	for _, m := range c.may {
		t.Permissions = append(t.Permissions, string(m))
	}
	_, c.token, err = r.AddToken(ctx, t)
	return c, err
}

// prepare finds the pages that each may read.
func (p *people) prepare(ctx context.Context, db *pgxpool.Pool, url string) error {
	type question struct {
		scope scope
		name  string // whose: what staff sees depends on the role
		list  string
	}
	known := map[question][]visit{}
	for _, c := range p.callers {
		for _, l := range table() {
			if !slices.Contains(c.may, l.needs) || c.scope != 0 && (l.values == institutions || l.in == "") {
				continue
			}
			q := question{c.scope, c.name, l.name}
			if _, ok := known[q]; !ok {
				found, err := l.visits(ctx, db, c.scope, func(path string) (answer, error) { return c.get(ctx, url+path) })
				if err != nil {
					return fmt.Errorf("as %s: %w", c.name, err)
				}
				known[q] = found
			}
			c.take(known[q])
		}
	}
	p.weigh()
	return p.findItems(ctx, db)
}

// take adds visits, those of each place together.
func (c *caller) take(found []visit) {
	for _, p := range []page{first, deep, last} {
		var some []visit
		for _, v := range found {
			if v.page == p {
				some = append(some, v)
			}
		}
		if len(some) > 0 {
			c.visits = append(c.visits, some)
		}
	}
}

// findItems finds items of each scope.
func (p *people) findItems(ctx context.Context, db *pgxpool.Pool) error {
	for _, c := range p.callers {
		if p.items[c.scope] != nil {
			continue
		}
		rows, err := db.Query(ctx, fmt.Sprintf(`
			(SELECT id FROM work_items TABLESAMPLE system (20) WHERE %[1]s LIMIT 500) UNION ALL
			(SELECT id FROM work_items_archive TABLESAMPLE system (5) WHERE %[1]s LIMIT 2000)`, c.scope.in("institution_id")))
		if err != nil {
			return fmt.Errorf("find items: %w", err)
		}
		if p.items[c.scope], err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return fmt.Errorf("find items: %w", err)
		}
		if len(p.items[c.scope]) == 0 {
			return fmt.Errorf("institution %d has no items; name a larger -scale", c.scope)
		}
	}
	return nil
}

// get requests a URL of the API.
func (c *caller) get(ctx context.Context, url string) (a answer, err error) {
	text, err := c.read(ctx, url, "Authorization", "Bearer "+c.token)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("read the answer: %w", err)
	}
	return a, nil
}

// read requests a URL with headers, name and value in turn. What is no success is a [refusal], and
// so is the page where a person signs in.
func (c *caller) read(ctx context.Context, url string, headers ...string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if got.StatusCode != http.StatusOK || got.Request.URL.Path == "/sign-in" {
		return text, &refusal{got.StatusCode, url, string(text)}
	}
	return text, nil
}

// refusal is an answer that is no success. The server refuses a list that takes too long.
type refusal struct {
	status    int
	url, body string
}

func (r *refusal) Error() string { return fmt.Sprintf("GET %s: %d %s", r.url, r.status, r.body) }

// sample is how long a request took.
type sample struct {
	visit  visit
	caller string
	took   time.Duration
	bytes  int // of a page
	failed *refusal
}

// crowd has so many callers make requests one after the other, for a while. next is what a
// caller requests, and pause the mean time between. It also returns how many were answered in a second.
func (p *people) crowd(ctx context.Context, n int, d, pause time.Duration, url string, next func(c *caller) visit) (all []sample, rate float64, err error) {
	began := time.Now()
	going, stop := context.WithTimeout(ctx, d) // no request is cut short
	defer stop()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		c := p.callers[i%len(p.callers)]
		group.Go(func() error {
			var own []sample
			for going.Err() == nil && (pause == 0 || retry.Pause(going, time.Duration(rand.Int64N(2*int64(pause))))) {
				s, err := c.measured(ctx, url, next(c))
				if err != nil {
					return err
				}
				own = append(own, s)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			return nil
		})
	}
	err = group.Wait()
	return all, float64(len(all)) / time.Since(began).Seconds(), err
}

// measured requests a page. A refusal is a sample.
func (c *caller) measured(ctx context.Context, url string, v visit) (sample, error) {
	began := time.Now()
	var text []byte
	var err error
	if c.cookie != "" {
		text, err = c.open(ctx, url+v.url)
	} else {
		_, err = c.get(ctx, url+v.url)
	}
	s := sample{visit: v, caller: c.name, took: time.Since(began), bytes: len(text)}
	if errors.As(err, &s.failed) {
		return s, nil
	}
	return s, err
}

// any is a page of any list.
func (c *caller) any() visit {
	at, _ := slices.BinarySearch(c.upto, rand.Float64()*c.upto[len(c.upto)-1])
	some := c.visits[min(at, len(c.visits)-1)]
	return some[rand.IntN(len(some))]
}

// weigh has a page that few people may read be requested more often by these.
func (p *people) weigh() {
	readers := map[spot]float64{}
	for _, c := range p.callers {
		for _, some := range c.visits {
			readers[spot{some[0].list, some[0].page}]++
		}
	}
	for _, c := range p.callers {
		sum := 0.0
		c.upto = nil
		for _, some := range c.visits {
			sum += 1 / readers[spot{some[0].list, some[0].page}]
			c.upto = append(c.upto, sum)
		}
	}
}
