package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

const (
	switches   = 10
	firstClaim = 10 * time.Second // from the first write that the new primary takes
)

// switchExperiments have PostgreSQL under Patroni, as archives run it.
func switchExperiments() []experiment {
	var c *patroni
	return []experiment{
		trial("pg-ten-switches", "PostgreSQL is under Patroni, behind HAProxy; ten times its primary is switched over, or it, its host or its Patroni is killed", "no attempt used up; first claim within 10 s of the first write that the new primary takes", 0,
			func(ctx context.Context, _ *site) error { return c.tenSwitches(ctx) }).
			drilled(func(ctx context.Context, s *site) (err error) { c, err = newPatroni(ctx, s); return err }),
	}
}

// A way is one in which the primary changes.
type way struct {
	name string
	do   func(ctx context.Context, primary, standby *node) error
}

// ways are mixed: a switchover is what operators do, and the others what befalls them. The host that
// is lost, and the Patroni that is killed, come back after the first claim. In the meantime, the
// PostgreSQL of the latter takes itself for the primary.
func ways() []way {
	return []way{
		{"switchover", func(ctx context.Context, primary, standby *node) error {
			return primary.switchover(ctx, standby)
		}},
		{"postgres", func(_ context.Context, primary, _ *node) error { return primary.killPostgres() }},
		{"switchover", func(ctx context.Context, primary, standby *node) error {
			return primary.switchover(ctx, standby)
		}},
		{"host", func(_ context.Context, primary, _ *node) error {
			return errors.Join(primary.killPatroni(), primary.killPostgres())
		}},
		{"patroni", func(_ context.Context, primary, _ *node) error { return primary.killPatroni() }},
	}
}

// tenSwitches changes the primary, while bags arrive and objects are asked for.
func (c *patroni) tenSwitches(ctx context.Context) error {
	var said []string
	for i := range switches {
		how := ways()[i%len(ways())]
		wrote, claimed, err := c.change(ctx, i, how)
		if err != nil {
			return fmt.Errorf("switch %d (%s): %w", i+1, how.name, err)
		}
		said = append(said, fmt.Sprintf("%s %.1f, %.1f", how.name, wrote.Seconds(), claimed.Seconds()))
		if claimed-wrote > firstClaim {
			c.broken = append(c.broken, oracle.Violation{
				Kind: "claim-late", Detail: fmt.Sprintf("after switch %d (%s), the first write was taken after %.1f s, and the first claim made after %.1f s", i+1, how.name, wrote.Seconds(), claimed.Seconds()),
			})
		}
	}
	c.note("seconds from each switch to the first write and the first claim: %s", strings.Join(said, "; "))
	if _, _, err := c.roles(ctx); err != nil {
		return err
	}
	return c.await(ctx, "all bags to be found", func() bool {
		var n int
		err := c.DB.QueryRow(ctx, `SELECT count(*) FROM work_items WHERE action = 'Ingest'`).Scan(&n)
		return err == nil && n >= len(c.Bags)
	})
}

// change changes the primary once, and returns how long the first write and the first claim took. Bags
// arrive before and, so that there is something to claim, as soon as the new one takes writes.
func (c *patroni) change(ctx context.Context, i int, how way) (wrote, claimed time.Duration, err error) {
	primary, standby, err := c.roles(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := errors.Join(c.deposit(ctx, c.part(2*i, 2*switches)), c.restore(ctx, i)); err != nil {
		return 0, 0, err
	}
	if at, err := c.firstClaim(ctx, began); err != nil || at.IsZero() {
		return 0, 0, errors.Join(err, errVoid)
	}
	ordered := time.Now()
	var g errgroup.Group
	g.Go(func() error { return how.do(ctx, primary, standby) })
	var takes time.Time
	taken, err := poll(ctx, time.Minute, func() (bool, error) {
		port, err := c.write(ctx, `INSERT INTO probes SELECT now()`)
		takes = time.Now()
		return err == nil && port == standby.port, nil
	})
	if err := errors.Join(err, g.Wait()); err != nil || !taken {
		return 0, 0, errors.Join(errors.New("the standby took no write within a minute"), err)
	}
	if err := c.deposit(ctx, c.part(2*i+1, 2*switches)); err != nil {
		return 0, 0, err
	}
	at, err := c.firstClaim(ctx, takes)
	if at.IsZero() {
		at = time.Now()
	}
	os.Remove(filepath.Join(primary.dir, "off")) //nolint:errcheck // it may be on
	return takes.Sub(ordered), at.Sub(ordered), err
}

// restore asks for three objects, which no one has asked for before, if there are so many.
func (c *patroni) restore(ctx context.Context, i int) error {
	var objects []string
	if err := c.DB.QueryRow(ctx, `SELECT array(SELECT identifier FROM intellectual_objects ORDER BY id LIMIT 3 OFFSET $1)`, 3*i).Scan(&objects); err != nil {
		return fmt.Errorf("look for objects: %w", err)
	}
	for _, o := range objects {
		if _, err := c.Farol(ctx, c.Env(), "restore", "object", o); err != nil {
			return err //nolint:wrapcheck // it says what it could not do
		}
	}
	return nil
}

// firstClaim is when the first claim after a moment was made; zero if there was none for half a
// minute. The database has the clock of this machine.
func (s *site) firstClaim(ctx context.Context, after time.Time) (at time.Time, err error) {
	s.DB.Reset()
	_, err = poll(ctx, 30*time.Second, func() (bool, error) {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var first *time.Time
		if err := s.DB.QueryRow(one, `SELECT min(claimed_at) FROM work_item_attempts WHERE claimed_at > $1`, after).Scan(&first); err != nil || first == nil {
			return false, nil // it has not changed yet
		}
		at = *first
		return true, nil
	})
	return at, err
}

// switchover does what patronictl switchover does.
func (n *node) switchover(ctx context.Context, to *node) error {
	body := fmt.Appendf(nil, `{"leader": %q, "candidate": %q}`, filepath.Base(n.dir), filepath.Base(to.dir))
	status, answer, err := n.ask(ctx, http.MethodPost, "switchover", body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the answer of Patroni is %d: %s", status, answer)
	}
	return err
}

// killPatroni kills Patroni, which stays away until the file is removed.
func (n *node) killPatroni() error {
	if err := os.WriteFile(filepath.Join(n.dir, "off"), nil, 0o600); err != nil {
		return fmt.Errorf("keep Patroni from its start: %w", err)
	}
	n.Signal(syscall.SIGKILL)
	return nil
}

// killPostgres kills all processes of PostgreSQL, as a host that goes down, or a container that is out of
// memory. If the first is killed alone, one that waits for the standby can outlive it for long, and
// PostgreSQL cannot start again.
func (n *node) killPostgres() error {
	text, err := os.ReadFile(filepath.Join(n.dir, "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	children, childErr := os.ReadFile(filepath.Join("/proc", first, "task", first, "children"))
	if err := errors.Join(err, childErr); err != nil {
		return fmt.Errorf("find PostgreSQL: %w", err)
	}
	for _, pid := range strings.Fields(first + " " + string(children)) {
		if number, err := strconv.Atoi(pid); err == nil {
			syscall.Kill(number, syscall.SIGKILL) //nolint:errcheck // a session may have ended
		}
	}
	return nil
}
