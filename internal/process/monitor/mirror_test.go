package monitor

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/nsqcompat"
)

// Each topic's drift is a metric, from the process that mirrors.
func TestMirrorTellsItsFigures(t *testing.T) {
	t.Parallel()
	nsq := testenv.NewNSQ(t)
	mirror := nsqcompat.NewMirror(testenv.Database(t), nsqcompat.MirrorOptions{NSQDTCPAddr: nsq.TCPAddr, NSQDHTTPAddr: nsq.HTTPAddr})
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(NewMirror(mirror))
	series := func() map[string]int {
		families := must.Get(metrics.Gather())(t)
		n := map[string]int{}
		for _, f := range families {
			n[f.GetName()] = len(f.GetMetric())
		}
		return n
	}
	if n := series(); n["farol_mirror_leads"] != 1 || n["farol_mirror_drift"] != 0 {
		t.Errorf("series of a mirror that does not run = %v", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	ended := make(chan error, 1)
	go func() { ended <- mirror.Run(ctx) }()
	for series()["farol_mirror_drift"] != 15 {
		select {
		case <-ctx.Done():
			t.Fatalf("series = %v, want 15 topics", series())
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
