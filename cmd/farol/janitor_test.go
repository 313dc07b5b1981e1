package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/storage"
)

// cmdStores makes the staging and preservation buckets of a script's own: stores
// PREFIX.
func cmdStores(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stores prefix")
	}
	ctx, cancel := bounded()
	defer cancel()
	client := storage.NewClient(storage.Options{})
	defer client.Close()
	create := func(variable, name string) {
		b, err := client.Bucket(s3Config{
			Endpoint: ts.Getenv("FAROL_S3_ENDPOINT"), CAFile: ts.Getenv("FAROL_S3_CA_FILE"), Region: ts.Getenv("AWS_REGION"),
			AccessKeyID: ts.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: storage.Secret(ts.Getenv("AWS_SECRET_ACCESS_KEY")),
		}.target(name))
		ts.Check(err)
		ts.Check(b.Create(ctx))
		ts.Setenv(variable, name)
	}
	create("FAROL_STAGING_BUCKET", args[0]+"-staging")
	for _, t := range storage.Targets() {
		create(t.EnvVar, args[0]+"-"+t.Bucket)
	}
}

// A worker's janitor makes its rounds beside its other work, counts what it removes,
// and goes on after a round that did not come to its end.
func TestWorkersCleanUp(t *testing.T) {
	t.Parallel()
	s3, url := testenv.S3(t), testenv.DatabaseURL(t)
	var said strings.Builder
	config := s3Config{
		Endpoint: s3.Endpoint, CAFile: s3.CAFile, Region: s3.Region, AccessKeyID: s3.AccessKeyID, SecretAccessKey: storage.Secret(s3.SecretAccessKey),
	}
	s, err := connect(t.Context(), "work", needs{
		Database: &databaseConfig{URL: storage.Secret(url)}, Redis: &redisConfig{URL: storage.Secret(testenv.RedisURL(t))},
		Storage: &storageConfig{s3Config: config, Staging: s3.Prefix + "staging"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	r := prometheus.NewRegistry()
	metrics := newJanitorMetrics(r)
	j := newJanitor(s, janitorConfig{Retention: time.Nanosecond, OrphanAge: time.Hour}, "worker", slog.New(slog.NewTextHandler(&said, nil)))
	ctx, stop := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { cleanAgainAndAgain(ctx, j, 40*time.Millisecond, metrics, j.Log) })
	count := func(metric string) float64 { return gathered(t, r)[metric] }
	until := func(what string, yes func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !yes(); {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s: %v\n%s", what, gathered(t, r), said.String())
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	until("a round without a staging bucket", func() bool { return count("farol_janitor_rounds_total incomplete") > 0 })
	if err := s.staging.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.staging.Put(t.Context(), "7/left", strings.NewReader("abc"), storage.Upload{Size: 3}); err != nil {
		t.Fatal(err)
	}
	until("the leftovers to go", func() bool { return count("farol_janitor_removed_bytes_total staging objects") == 3 })
	stop()
	loop.Wait()
	if n := count("farol_janitor_removed_total staging objects"); n != 1 || count("farol_janitor_rounds_total done") == 0 {
		t.Errorf("counted %v", gathered(t, r))
	}
}

// Rounds are made by whoever asks first once one is due, and not by each worker.
func TestWorkersShareTheRounds(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	metrics := newJanitorMetrics(r)
	cleanAgainAndAgain(t.Context(), nil, 0, metrics, nil) // an interval of 0: none, ever
	metrics.observe(&pipeline.Report{Findings: []pipeline.Finding{
		{Store: "redis", What: "keys", Count: 2, Bytes: 100, Janitor: pipeline.Removed},
		{Store: "redis", What: "keys", Count: 5, Bytes: 500, Janitor: pipeline.Waits},
	}}, nil)
	want := map[string]float64{
		"farol_janitor_rounds_total done": 1, "farol_janitor_rounds_total incomplete": 0,
		"farol_janitor_removed_total redis keys": 2, "farol_janitor_removed_bytes_total redis keys": 100,
	}
	if diff := cmp.Diff(want, gathered(t, r)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
