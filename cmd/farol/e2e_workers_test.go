package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Two processes on one queue share its items, and never one at the same time.
func TestTwoWorkersNeverShareAnItem(t *testing.T) {
	t.Parallel()
	const bags = 30
	s := newSite(t)
	first, second := s.worker(), s.worker()
	second.eventually("one worker to listen, and the other to stand in line", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND (query LIKE 'LISTEN farol_work%' OR query LIKE '%farol.first%') AND pid <> pg_backend_pid()`) == 2
	})
	var specs []bagtest.Spec
	for i := range bags {
		specs = append(specs, bagtest.Spec{Name: fmt.Sprintf("bag-%02d", i), Files: []bagtest.File{text("data/a.txt"), random("data/b.bin", 10_000, uint64(i))}})
	}
	s.deposit(specs...)
	s.atRest(first)
	s.terminate(first)
	s.terminate(second)

	stages := len(settings.StageNames())
	counts(t, s.db, map[string]int{
		`SELECT count(*) FROM work_items WHERE status = 'Success'`:       bags,
		`SELECT count(DISTINCT pid) FROM work_item_attempts`:             2,
		`SELECT count(*) FROM work_item_attempts`:                        bags * stages,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`: bags * stages,
		`SELECT count(*) FROM topic_messages`:                            bags * stages,
		`SELECT count(*) FROM generic_files`:                             bags * 4,
		`SELECT count(*) FROM storage_records`:                           bags * 4 * 2,
	})
	ledgerIsSound(t, s.db)
	for _, p := range []*process{first, second} {
		if n := ask[int](t, s.db, `SELECT count(DISTINCT work_item_id) FROM work_item_attempts WHERE pid = $1`, p.Process.Pid); n == 0 {
			t.Errorf("process %d did nothing", p.Process.Pid)
		}
	}
}

// terminate stops a process by SIGTERM and waits until it has ended, in good order.
func (s *site) terminate(p *process) {
	s.t.Helper()
	must.Do(s.t, p.Process.Signal(syscall.SIGTERM))
	if err := p.wait(); err != nil {
		s.t.Errorf("after SIGTERM: %v", err)
	}
}
