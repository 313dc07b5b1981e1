package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/nsqcompat"
)

// awaitMirror waits until nsqd has all hand-offs, and counts what it has.
func (d *demo) awaitMirror(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	mirror := nsqcompat.NewMirror(d.db, nsqcompat.MirrorOptions{NSQDTCPAddr: d.NSQDTCPAddr})
	for {
		lag, err := mirror.Lag(ctx)
		if err != nil {
			return err
		}
		if lag.Messages == 0 {
			d.mirror, err = nsqdMessages(ctx, d.NSQDHTTPAddr)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the mirror, which is %d messages behind: %w", lag.Messages, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// nsqdMessages asks nsqd how many messages its topics have been given.
func nsqdMessages(ctx context.Context, addr string) (n int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/stats?format=json", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask nsqd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask nsqd: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read as far as we need
	var stats struct {
		Topics []struct {
			MessageCount int64 `json:"message_count"`
		} `json:"topics"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&stats); err != nil {
		return 0, fmt.Errorf("read nsqd's answer: %w", err)
	}
	for _, t := range stats.Topics {
		n += t.MessageCount
	}
	return n, nil
}
