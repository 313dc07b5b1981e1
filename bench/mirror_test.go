package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// BenchmarkHopsMirrored measures what a mirror costs the queue on one machine: hops a
// second of 8 workers that claim 10 items at once, without a mirror, with one in a
// process of its own, and with one whose nsqd does not answer, in turns. It also tells
// how long the mirror takes afterwards to come to the end.
func BenchmarkHopsMirrored(b *testing.B) {
	stack, db := database(b, devstack.NSQ)
	binary := build(b, b.TempDir())
	h := newHops(b, db, 10_000, 10)
	const span, turns = 4 * time.Second, 3
	rates := map[string][]float64{}
	modes := []string{"off", "on", "nsqd-dead"}
	for range turns {
		for _, mode := range modes {
			run(b, db, `TRUNCATE topic_messages, topic_retries`, `CHECKPOINT`)
			stop := func() {}
			switch mode {
			case "on":
				stop = startMirror(b, binary, stack.AdminURL, stack.NSQDTCPAddr, stack.NSQDHTTPAddr)
			case "nsqd-dead":
				stop = startMirror(b, binary, stack.AdminURL, "127.0.0.1:1", "127.0.0.1:1")
			}
			began, n := time.Now(), atomic.Int64{}
			h.all(8, func(made int) bool { n.Add(int64(made)); return time.Since(began) < span })
			rates[mode] = append(rates[mode], float64(n.Load())/time.Since(began).Seconds())
			if mode == "on" {
				behind := time.Now()
				for left := 1; left > 0; {
					if err := db.QueryRow(context.Background(), `SELECT count(*) FROM (SELECT FROM topic_messages m, topic_readers r
						WHERE r.name = 'nsq-mirror' AND (m.xid, m.id) > (r.xid, r.message_id) LIMIT 1) x`).Scan(&left); err != nil {
						b.Fatal(err)
					}
				}
				b.Logf("%d hops; the mirror came to their end %v later", n.Load(), time.Since(behind).Round(time.Millisecond))
			}
			stop()
		}
	}
	for _, mode := range modes {
		slices.Sort(rates[mode])
		b.Logf("mirror %s: %.0f hops/s", mode, rates[mode])
		b.ReportMetric(rates[mode][turns/2], "mirror-"+mode+"-hops/s")
	}
}

func startMirror(b *testing.B, binary, database, tcp, http string) (stop func()) {
	b.Helper()
	cmd := exec.Command(binary, "mirror")
	cmd.Dir = b.TempDir()
	cmd.Env = []string{"FAROL_DATABASE_URL=" + database, "FAROL_NSQD_TCP_ADDR=" + tcp, "FAROL_NSQD_HTTP_ADDR=" + http, "TMPDIR=" + filepath.Clean(b.TempDir())}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second) //nolint:forbidigo // it takes stock
	return func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}
