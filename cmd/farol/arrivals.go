package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/storage/events"
	"github.com/farol-preservation/farol/web/arrivals"
)

// eventSources are how a process that scans receiving buckets receives S3 events. There may be none.
type eventSources struct {
	run    []func(context.Context)
	routes []func(*http.ServeMux)
}

// receiveEvents returns the sources that the settings ask for, if this process runs the job read-buckets.
func (c *scheduling) receiveEvents(ctx context.Context) (l eventSources, err error) {
	read, s3 := c.config.Read, c.config.S3
	if c.config.Storage != nil {
		s3 = cmp.Or(s3, &c.config.Storage.S3)
	}
	reads := false
	for _, j := range c.Jobs {
		reads = reads || j.Name == upkeep.ReadBucketsJob
	}
	if !reads || read.QueueURL == "" && read.Token == "" {
		return l, nil
	}
	a := upkeep.NewArrivals(c.reader(), monitor.NewArrivals(c.metrics.Registry).Observe)
	l.run = append(l.run, a.Run)
	if read.QueueURL != "" {
		q, err := events.NewQueue(read.QueueURL, s3.Region, s3.Target("").Credentials(), c.Log)
		if err != nil {
			return l, cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("read S3 events: %w", err), Next: "set FAROL_READ_QUEUE_URL to the URL of a queue"}
		}
		l.run = append(l.run, func(ctx context.Context) { q.Run(ctx, a.Take) })
		c.Log.InfoContext(ctx, "reading S3 events", "queue", read.QueueURL)
	}
	if read.Token != "" {
		l.routes = append(l.routes, arrivals.Routes(read.CurrentToken, a.Take))
		if c.config.HTTP.Addr == "" {
			c.Log.WarnContext(ctx, "FAROL_READ_TOKEN has no effect: S3 events are posted to FAROL_HTTP_ADDR, which is not set")
		}
	}
	return l, nil
}

// alongside runs all that is to run until ctx is done, and work.
func (l eventSources) alongside(ctx context.Context, work func(context.Context)) {
	var all sync.WaitGroup
	for _, run := range l.run {
		all.Go(func() { run(ctx) })
	}
	work(ctx)
	all.Wait()
}
