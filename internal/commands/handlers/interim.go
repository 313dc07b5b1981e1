package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
)

// interim is where the server finds how far items are: in Redis and the staging bucket, if
// it has settings for them. It serves the rest without.
func (h *house) interim(ctx context.Context) api.Interim {
	i := api.Interim{Measures: ingest.Measures()}
	d := pipeline.Deps{Registry: h.Registry, Log: slog.New(slog.DiscardHandler)}
	if item, err := connect.Load(settings.Item{}); err != nil {
		h.log.InfoContext(ctx, "Redis is not set up; the progress of items is not served", "why", err)
	} else {
		i.Progress = h.openProgress(item.Redis)
	}
	if stores, err := connect.Load(settings.ItemStores{}); err != nil {
		i.Unset = err
		h.log.InfoContext(ctx, "S3 is not set up; the files of items in progress are not served", "why", err)
	} else if err := h.openBuckets(ctx, stores, &d, &i); err != nil {
		h.log.WarnContext(ctx, "cannot open the buckets of items in progress; their files are not served", "err", err)
	}
	i.Reader = ingest.InterimReader(d)
	return i
}

// openBuckets opens the bucket for staging, and the one that keeps interim metadata if there
// is one. Nothing is asked of them yet.
func (h *house) openBuckets(ctx context.Context, c settings.ItemStores, d *pipeline.Deps, i *api.Interim) error {
	s, err := connect.Open(ctx, "serve", connect.Needs{S3: &c.S3})
	if err != nil {
		return err
	}
	if d.Staging, err = s.Receiving(c.Staging.Bucket); err != nil {
		return err
	}
	keep, err := connect.Load(settings.Keep{})
	if err != nil || keep.Bucket == "" {
		return err
	}
	kept, err := s.Receiving(keep.Bucket)
	i.Sources.Kept = func(context.Context) (*storage.Bucket, error) { return kept, nil }
	return err
}

// restsRedis is how long Redis is not tried again that did not answer: requests would wait
// for it one after the other.
const restsRedis = 5 * time.Second

// openProgress opens Redis when it is first needed, and again until it answers: the server
// starts without it.
func (h *house) openProgress(c settings.Redis) func(context.Context) (*progress.Store, error) {
	var mu sync.Mutex
	var failed error
	var tried time.Time
	return func(ctx context.Context) (*progress.Store, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case h.Progress != nil:
			return h.Progress, nil
		case failed != nil && time.Since(tried) < restsRedis:
			return nil, failed
		}
		if err := h.OpenProgress(context.WithoutCancel(ctx), c); err != nil {
			failed, tried = fmt.Errorf("connect to Redis: %w", err), time.Now()
			return nil, failed
		}
		return h.Progress, nil
	}
}
