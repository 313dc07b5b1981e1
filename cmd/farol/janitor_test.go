package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// cmdStores makes the staging and preservation buckets of a script's own: stores
// PREFIX.
func cmdStores(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: stores prefix [keep]")
	}
	ctx, cancel := bounded()
	defer cancel()
	create := func(variable, name string) {
		b, end := scriptBucket(ts, name)
		defer end()
		ts.Check(b.Create(ctx))
		ts.Setenv(variable, name)
	}
	create("FAROL_STAGING_BUCKET", args[0]+"-staging")
	if len(args) > 1 {
		create("FAROL_KEEP_METADATA", args[0]+"-kept")
	}
	for _, t := range storage.Targets() {
		create(t.EnvVar, args[0]+"-"+t.Bucket)
	}
}

// The scheduler's janitor makes its rounds, counts what it removes, and goes on after
// a round that did not come to its end.
func TestSchedulerCleansUp(t *testing.T) {
	t.Parallel()
	s3, url := testenv.S3(t), testenv.DatabaseURL(t)
	config := settings.S3{
		Endpoint: s3.Endpoint, CAFile: s3.CAFile, Region: s3.Region, AccessKeyID: s3.AccessKeyID, SecretAccessKey: storage.Secret(s3.SecretAccessKey),
	}
	s := must.Get(connect.Open(t.Context(), "schedule", connect.Needs{
		Database: &settings.Database{URL: storage.Secret(url)}, Redis: &settings.Redis{URL: storage.Secret(testenv.RedisURL(t))},
		Storage: &settings.Storage{S3: config, Staging: s3.Prefix + "staging"},
	}))(t)
	defer s.Close()
	chosen := []string{upkeep.JanitorJob}
	c := newScheduling("schedule", s, settings.Scheduler{
		Janitor: &settings.Janitor{Retention: time.Nanosecond, OrphanAge: time.Hour, Interval: 40 * time.Millisecond},
	}, chosen)
	c.Log = slog.New(slog.DiscardHandler)
	for _, j := range jobs() {
		if slices.Contains(chosen, j.name) {
			c.Jobs = append(c.Jobs, j.make(c))
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { c.Run(ctx) })
	metric := func(name string) float64 { return counted(t, c.metrics.Registry)[name] }
	testenv.Eventually(t, "a round without a staging bucket", func() bool { return metric("farol_janitor_rounds_total incomplete") > 0 })
	testenv.Eventually(t, "its being counted", func() bool { return metric("farol_schedule_runs_total janitor failed") > 0 })
	must.Do(t, s.Staging.Create(t.Context()))
	must.Get(s.Staging.Put(t.Context(), "7/left", strings.NewReader("abc"), storage.Upload{Size: 3}))(t)
	testenv.Eventually(t, "the leftovers to go", func() bool { return metric("farol_janitor_removed_bytes_total staging objects") == 3 })
	testenv.Eventually(t, "that to be counted", func() bool { return metric("farol_schedule_runs_total janitor done") > 0 })
	stop()
	loop.Wait()
	if n := metric("farol_janitor_removed_total staging objects"); n != 1 || metric("farol_janitor_rounds_total done") == 0 {
		t.Errorf("counted %v", counted(t, c.metrics.Registry))
	}
}

// counted are the counters of a registry, by name and labels.
func counted(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families := must.Get(from.Gather())(t)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue()
		}
	}
	return all
}
