package main

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// idleCosts are how many statements a process may send in a second while there is nothing to
// do, a little above what was counted when they were written. The goal is 2 for each.
func idleCosts() map[string]float64 {
	return map[string]float64{"work": 2.8, "mirror": 2, "schedule": 2}
}

// Processes as nobody has configured them ask little of the database while there is nothing
// to do. The server counts their statements, and times them by its clock: a machine that is
// busy makes them fewer.
func TestIdleProcessesAskLittle(t *testing.T) {
	t.Parallel()
	server, nsq := testenv.NewCountingServer(t), testenv.NewNSQ(t)
	s := newSiteIn(t, server.URL)
	for _, hurried := range []string{"FAROL_LEASE", "FAROL_HEARTBEAT", "FAROL_POLL"} {
		delete(s.settings, hurried)
	}
	s.settings["FAROL_NSQD_TCP_ADDR"], s.settings["FAROL_NSQD_HTTP_ADDR"] = nsq.TCPAddr, nsq.HTTPAddr
	for command := range idleCosts() {
		server.Exec(`CREATE ROLE idle_` + command + ` SUPERUSER LOGIN PASSWORD 'idle'`)
		u := must.Get(url.Parse(server.URL))(t)
		u.User = url.UserPassword("idle_"+command, "idle")
		settings := map[string]string{}
		for name, value := range s.settings {
			settings[name] = value
		}
		settings["FAROL_DATABASE_URL"] = u.String()
		startProcess(t, s.binary, t.TempDir(), settings, command)
	}
	// After so many polls a worker has started, and so have the others.
	const starting, idle = 4, 20 * time.Second
	var c idleCounts
	testenv.Eventually(t, "the processes to have started", func() bool {
		c = s.idleCounts()
		return c.polls >= starting && len(c.calls) == len(idleCosts())
	})
	server.Exec(`SELECT pg_stat_statements_reset()`)
	began := c.at
	testenv.Eventually(t, "the time to pass", func() bool {
		c = s.idleCounts()
		return c.at.Sub(began) >= idle
	})
	for command, most := range idleCosts() {
		n, seconds := c.calls["idle_"+command], c.at.Sub(began).Seconds()
		t.Logf("farol %s sends %.2f statements a second; %.2f are allowed", command, float64(n)/seconds, most)
		if float64(n) > most*seconds {
			t.Errorf("farol %s sent %d statements in %.0f seconds, want %.2f a second at most", command, n, seconds, most)
		}
		s.logStatements("idle_" + command)
	}
}

// idleCounts are how many statements each role has sent until a moment.
type idleCounts struct {
	at    time.Time // by the server's clock
	calls map[string]int64
	polls int // of the worker, for work that is due
}

func (s *site) idleCounts() (c idleCounts) {
	s.t.Helper()
	c.calls = map[string]int64{}
	rows, _ := s.db.Query(context.Background(), `
		SELECT clock_timestamp(), rolname, sum(calls)::bigint, coalesce(sum(calls) FILTER (WHERE query LIKE '-- due:%'), 0)::integer
		FROM pg_roles JOIN pg_stat_statements ON userid = pg_roles.oid WHERE rolname LIKE 'idle\_%' GROUP BY rolname`)
	var role string
	var calls int64
	var polls int
	must.Get(pgx.ForEachRow(rows, []any{&c.at, &role, &calls, &polls}, func() error {
		c.calls[role] = calls
		c.polls += polls
		return nil
	}))(s.t)
	return c
}

// logStatements logs what a role has sent most.
func (s *site) logStatements(role string) {
	s.t.Helper()
	rows, _ := s.db.Query(context.Background(), `SELECT calls, left(regexp_replace(query, '\s+', ' ', 'g'), 200)
		FROM pg_stat_statements JOIN pg_roles ON userid = pg_roles.oid WHERE rolname = $1 ORDER BY calls DESC LIMIT 15`, role)
	var calls int64
	var query string
	must.Get(pgx.ForEachRow(rows, []any{&calls, &query}, func() error {
		s.t.Logf("%d × %s", calls, query)
		return nil
	}))(s.t)
}
