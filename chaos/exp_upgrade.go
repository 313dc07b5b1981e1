package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// upgradePause is how long nothing may be claimed at a migration.
const upgradePause = time.Second

// upgradeExperiments have processes of two releases on one database.
func upgradeExperiments() []experiment {
	var u *upgrading
	return []experiment{
		trial("upgrade", "the database is migrated under the release before, whose processes are then replaced by halves, and at last taken back", "no attempt used up; claims pause for 1 s at most", 0,
			func(ctx context.Context, _ *site) error { return u.run(ctx) }).
			drilled(func(ctx context.Context, s *site) (err error) { u, err = newUpgrade(ctx, s); return err }),
	}
}

// upgrading is a site whose processes are replaced by those of another release.
type upgrading struct {
	*site

	before, now string        // programs
	halves      [2][]*process // each has processes of all kinds
	ports       [2]string     // of the servers
}

// phases are how many parts the bags have: two for the migration, and one after each replacement.
const phases = 6

// newUpgrade builds the release before, has it make the database, and has processes of it alone.
func newUpgrade(ctx context.Context, s *site) (*upgrading, error) {
	rev := s.before
	if rev == "" {
		newest, err := devstack.Output(ctx, "..", "git", "log", "-1", "--format=%H", "--", ":(glob)migrations/*.sql")
		if err != nil {
			return nil, fmt.Errorf("find the newest migration; name a commit by --before: %w", err)
		}
		rev = strings.TrimSpace(newest) + "^"
	}
	tree := filepath.Join(s.Dir, "before")
	u := &upgrading{site: s, before: filepath.Join(tree, "farol-before"), now: s.Binary}
	commit, err := devstack.Checkout(ctx, "..", rev, tree)
	if err == nil {
		_, err = devstack.Output(ctx, tree, "go", "build", "-trimpath", "-o", u.before, "./cmd/farol")
	}
	if err != nil {
		return nil, fmt.Errorf("the release before, which --before names: %w", err)
	}
	s.note("the release before is %s", commit)
	return u, errors.Join(u.empty(ctx), u.staff())
}

// empty makes the database again, as the release before makes it.
func (u *upgrading) empty(ctx context.Context) error {
	u.DB.Close()
	for _, sql := range []string{"DROP DATABASE " + u.Name + " WITH (FORCE)", "CREATE DATABASE " + u.Name + " TEMPLATE template0"} {
		if err := u.Admin(ctx, sql); err != nil {
			return err //nolint:wrapcheck // it names the statement
		}
	}
	if err := u.farol(ctx, u.before, "migrate", "up"); err != nil {
		return err
	}
	return errors.Join(u.LookAt(ctx, u.AdminURL, ""), u.AddInstitutions(ctx))
}

// farol runs a command of a release.
func (u *upgrading) farol(ctx context.Context, program string, args ...string) error {
	u.Binary = program
	defer func() { u.Binary = u.now }()
	_, err := u.Farol(ctx, u.Env(), args...)
	return err //nolint:wrapcheck // it says what it could not do
}

// staff has the workers, and two schedulers and servers, be of the release before.
func (u *upgrading) staff() error {
	another, err := u.process("scheduler-2", "schedule", "--jobs", "read-buckets")
	if err != nil {
		return err
	}
	u.halves = [2][]*process{{u.scheduler}, {another}}
	for i, w := range u.workers {
		u.halves[i%2] = append(u.halves[i%2], w)
	}
	ports, err := devstack.FreePorts(len(u.halves))
	if err != nil {
		return err //nolint:wrapcheck // it says what it could not find
	}
	u.workers = append(u.workers, another) // everyone() asks all of them
	for i, port := range ports {
		server, err := u.process("server-"+strconv.Itoa(i+1), "serve", "--pull")
		if err != nil {
			return err
		}
		u.ports[i], server.Env["FAROL_PULL_ADDR"] = port, "127.0.0.1:"+port
		u.halves[i] = append(u.halves[i], server)
		u.workers = append(u.workers, server)
	}
	for _, p := range u.everyone() {
		p.Binary = u.before
	}
	return nil
}

// run migrates the database under the processes of the release before, replaces these by halves, and
// takes that back.
func (u *upgrading) run(ctx context.Context) error {
	if err := u.migrate(ctx); err != nil {
		return err
	}
	for i, program := range []string{u.now, u.now, u.before, u.before} {
		// Where charts and scripts migrate first, they do so on the way back, too.
		if err := u.farol(ctx, program, "migrate", "up"); err != nil {
			return err
		}
		for _, p := range u.halves[i%2] {
			p.Stop()
			p.Binary = program
			if err := p.Start(); err != nil {
				return err
			}
		}
		if err := u.work(ctx, i+2); err != nil {
			u.broken = append(u.broken, oracle.Violation{Kind: "replacement-failed", Detail: fmt.Sprintf("after replacement %d of 4: %v", i+1, err)})
			return ctx.Err() //nolint:wrapcheck // as it is
		}
	}
	return nil
}

// migrate migrates the database in the midst of work, and measures the longest time without a claim.
func (u *upgrading) migrate(ctx context.Context) error {
	began := time.Now()
	if err := u.deposit(ctx, u.part(0, phases/2)); err != nil {
		return err
	}
	first, err := u.firstClaim(ctx, began)
	if err != nil || first.IsZero() {
		return errors.Join(err, errVoid)
	}
	if err := sleep(ctx, upgradePause); err != nil {
		return err
	}
	ordered := time.Now()
	if err := u.farol(ctx, u.now, "migrate", "up"); err != nil {
		return err
	}
	migrated := time.Now()
	if err := sleep(ctx, upgradePause); err != nil {
		return err
	}
	var gap float64
	err = u.DB.QueryRow(ctx, `
		SELECT max(extract(epoch FROM at - before)) FROM (
			SELECT at, lag(at) OVER (ORDER BY at) AS before FROM (
				SELECT claimed_at::timestamptz AS at FROM work_item_attempts WHERE claimed_at BETWEEN $1 AND $2
				UNION ALL SELECT unnest(ARRAY[$1, $2]::timestamptz[])) c) g`,
		ordered.Add(-upgradePause), migrated.Add(upgradePause)).Scan(&gap)
	if err != nil {
		return fmt.Errorf("read the claims: %w", err)
	}
	u.note("the migration took %.2f s; the longest time without a claim around it was %.2f s", migrated.Sub(ordered).Seconds(), gap)
	if gap > upgradePause.Seconds() {
		u.broken = append(u.broken, oracle.Violation{Kind: "claims-paused", Detail: fmt.Sprintf("for %.2f s around the migration nothing was claimed, should be %s at most", gap, upgradePause)})
	}
	return nil
}

// work deposits a part of the bags and waits until most of the work so far is done, by the programs
// that run. A message goes from one server to the other.
func (u *upgrading) work(ctx context.Context, part int) error {
	began := time.Now()
	if err := errors.Join(u.deposit(ctx, u.part(part, phases)), u.message(ctx, fmt.Sprintf("part-%d", part))); err != nil {
		return err
	}
	want := (part + 1) * len(u.Bags) / phases * stages * 7 / 10 // invalid bags have fewer stages
	var claims map[string]int
	done, err := poll(ctx, 90*time.Second, func() (bool, error) {
		c, err := u.Look(ctx)
		if err == nil {
			claims, err = u.claims(ctx, began)
		}
		return c.Done >= want, err
	})
	if err == nil && !done {
		err = fmt.Errorf("in 90 s, not %d stages were done", want)
	}
	if err == nil && len(claims) == 1 && slices.Contains(slices.Collect(maps.Values(claims)), 0) {
		err = errVoid // of two, one may take all before the other is notified
	}
	u.note("part %d: %d claims of the release before, %d of this one", part+1, claims[u.before], claims[u.now])
	return err
}

// claims counts the claims since a moment by the programs of the workers that run.
func (u *upgrading) claims(ctx context.Context, since time.Time) (map[string]int, error) {
	claims := map[string]int{}
	for _, w := range u.workers {
		var n int
		if err := u.DB.QueryRow(ctx, `SELECT count(*) FROM work_item_attempts WHERE claimed_at > $1 AND pid = $2`, since, w.Pid()).Scan(&n); err != nil {
			return nil, fmt.Errorf("count the claims: %w", err)
		}
		claims[w.Binary] += n
	}
	return claims, nil
}

// message has one server pass a message on to who asks the other.
func (u *upgrading) message(ctx context.Context, queue string) error {
	var answer string
	ask := func(port, path, body string) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+port+path, strings.NewReader(body))
		if err != nil {
			return false, err //nolint:wrapcheck // cannot be
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			answer = err.Error()
			return false, nil // it is starting
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(resp.Body)
		answer = string(text)
		return resp.StatusCode == http.StatusOK, err //nolint:wrapcheck // it says what it could not read
	}
	for _, call := range [][3]string{
		{u.ports[0], "/post", fmt.Sprintf(`{"messages": {%q: ["hello"]}}`, queue)},
		{u.ports[1], "/pull", fmt.Sprintf(`{"receiver": "chaos", "queues": {%q: {}}, "timeout": 1}`, queue)},
	} {
		ok, err := poll(ctx, 30*time.Second, func() (bool, error) { return ask(call[0], call[1], call[2]) })
		if err == nil && !ok {
			err = fmt.Errorf("%s: the server answered: %s", call[1], answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
