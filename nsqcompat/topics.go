package nsqcompat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/jackc/pgx/v5"
)

const (
	// fixityTopic is the one topic whose messages are not about work items.
	fixityTopic = "fixity_check"
	// channelSuffix makes the name of the one channel that each topic has.
	channelSuffix = "_worker_chan"
	// answerMost bounds what is read of nsqd's answer.
	answerMost = 16 << 20
)

// makeTopics makes the topics and channels that nsqd lacks, so that dashboards
// show them before the first message comes.
func (m *Mirror) makeTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := m.db.Query(ctx, `SELECT DISTINCT topic FROM stage_settings ORDER BY topic`) // CollectRows returns the error
	topics, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the names of topics: %w", err)
	}
	there, err := m.channels(ctx)
	if err != nil {
		return err
	}
	for _, topic := range append(topics, fixityTopic) {
		channel := topic + channelSuffix
		if there[channel] {
			continue
		}
		if _, err := m.ask(ctx, http.MethodPost, "/topic/create", url.Values{"topic": {topic}}); err != nil {
			return err
		}
		if _, err := m.ask(ctx, http.MethodPost, "/channel/create", url.Values{"topic": {topic}, "channel": {channel}}); err != nil {
			return err
		}
	}
	return nil
}

// channels returns the names of nsqd's channels, which tell their topics.
func (m *Mirror) channels(ctx context.Context) (map[string]bool, error) {
	answer, err := m.ask(ctx, http.MethodGet, "/stats",
		url.Values{"format": {"json"}, "include_clients": {"false"}, "include_mem": {"false"}})
	if err != nil {
		return nil, err
	}
	var stats struct {
		Topics []struct {
			Channels []struct {
				Name string `json:"channel_name"`
			} `json:"channels"`
		} `json:"topics"`
	}
	if err := json.Unmarshal(answer, &stats); err != nil {
		return nil, fmt.Errorf("read nsqd's stats: %w", err)
	}
	there := map[string]bool{}
	for _, topic := range stats.Topics {
		for _, channel := range topic.Channels {
			there[channel.Name] = true
		}
	}
	return there, nil
}

// ask calls nsqd's HTTP API.
func (m *Mirror) ask(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	at := url.URL{Scheme: "http", Host: m.o.NSQDHTTPAddr, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask nsqd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask nsqd: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if err != nil {
		return nil, fmt.Errorf("ask nsqd: %s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask nsqd: %s %s: %s", method, path, response.Status)
	}
	return answer, nil
}
