package nsqcompat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// channelSuffix makes the name of the channel that shows the queue.
	channelSuffix = "_worker_chan"
	// answerMost bounds what is read of nsqd's answer.
	answerMost = 64 << 20
	// lookTimeout bounds a call of nsqd's HTTP API.
	lookTimeout = 3 * time.Second
)

// daemon is an nsqd.
type daemon struct{ tcp, http string } // host:port

// nsqdStats are what nsqd says of itself.
type nsqdStats struct {
	StartTime int64        `json:"start_time"`
	Topics    []topicStats `json:"topics"`

	at time.Time // by nsqd's clock, to the second
}

type topicStats struct {
	Name     string         `json:"topic_name"`
	Depth    int64          `json:"depth"`
	Paused   bool           `json:"paused"`
	Channels []channelStats `json:"channels"`
}

type channelStats struct {
	Name     string        `json:"channel_name"`
	Depth    int64         `json:"depth"`
	InFlight int64         `json:"in_flight_count"`
	Deferred int64         `json:"deferred_count"`
	Requeued int64         `json:"requeue_count"`
	TimedOut int64         `json:"timeout_count"`
	Paused   bool          `json:"paused"`
	Clients  []clientStats `json:"clients"`
}

type clientStats struct {
	ID       string `json:"client_id"`
	InFlight int64  `json:"in_flight_count"`
	Finished int64  `json:"finish_count"`
}

func (s nsqdStats) topic(name string) (topicStats, bool) {
	for _, t := range s.Topics {
		if t.Name == name {
			return t, true
		}
	}
	return topicStats{}, false
}

func (t topicStats) channel(name string) (channelStats, bool) {
	for _, c := range t.Channels {
		if c.Name == name {
			return c, true
		}
	}
	return channelStats{}, false
}

func (c channelStats) messages() int64 { return c.Depth + c.InFlight + c.Deferred }

// stats asks nsqd for its figures.
func (d daemon) stats(ctx context.Context) (s nsqdStats, err error) {
	answer, date, err := d.ask(ctx, http.MethodGet, "/stats", url.Values{"format": {"json"}, "include_mem": {"false"}})
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return s, fmt.Errorf("read nsqd's stats: %w", err)
	}
	if s.at, err = http.ParseTime(date); err != nil {
		return s, fmt.Errorf("read nsqd's clock: %w", err)
	}
	return s, nil
}

func (d daemon) post(ctx context.Context, path string, query url.Values) error {
	_, _, err := d.ask(ctx, http.MethodPost, path, query)
	return err
}

// ask calls nsqd's HTTP API. The date is as nsqd says it.
func (d daemon) ask(ctx context.Context, method, path string, query url.Values) (answer []byte, date string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	at := url.URL{Scheme: "http", Host: d.http, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("ask nsqd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", fmt.Errorf("ask nsqd: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err = io.ReadAll(io.LimitReader(response.Body, answerMost))
	if err != nil {
		return nil, "", fmt.Errorf("ask nsqd: %s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("ask nsqd: %s %s: %s", method, path, response.Status)
	}
	return answer, response.Header.Get("Date"), nil
}
