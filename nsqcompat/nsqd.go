package nsqcompat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// channelSuffix makes the name of the channel that shows the queue.
	channelSuffix = "_worker_chan"
	// maxAnswered bounds what is read of an answer.
	maxAnswered = 64 << 20
	// httpTimeout bounds a call of an HTTP API.
	httpTimeout = 3 * time.Second
)

// daemon is an nsqd.
type daemon struct{ tcp, http string } // host:port

// nsqdStats are nsqd's own figures.
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

// stats reads nsqd's figures.
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
	return call(ctx, "nsqd", method, url.URL{Scheme: "http", Host: d.http, Path: path, RawQuery: query.Encode()})
}

// call calls an HTTP API of NSQ.
func call(ctx context.Context, who, method string, at url.URL) (answer []byte, date string, err error) {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("query %s: %w", who, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", fmt.Errorf("query %s: %w", who, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswered))
	if err != nil {
		return nil, "", fmt.Errorf("query %s: %s %s: %w", who, method, at.Path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("query %s: %s %s: %s", who, method, at.Path, response.Status)
	}
	return answer, response.Header.Get("Date"), nil
}

// create creates the topics and channels that nsqd lacks, so that dashboards show them
// before the first message, and returns the topics whose channel it lacked: because
// it is new, or was wiped.
func (d daemon) create(ctx context.Context, topics []string, has nsqdStats) (created map[string]bool, err error) {
	created = map[string]bool{}
	for _, topic := range topics {
		t, there := has.topic(topic)
		if !there {
			if err := d.post(ctx, "/topic/create", url.Values{"topic": {topic}}); err != nil {
				return nil, err
			}
		}
		channel := topic + channelSuffix
		if _, there := t.channel(channel); there {
			continue
		}
		if err := d.post(ctx, "/channel/create", url.Values{"topic": {topic}, "channel": {channel}}); err != nil {
			return nil, err
		}
		created[topic] = true
	}
	return created, nil
}

// pause pauses a topic, or unpauses it and our channel.
func (d daemon) pause(ctx context.Context, topic string, yes bool) error {
	if yes {
		return d.post(ctx, "/topic/pause", url.Values{"topic": {topic}})
	}
	if err := d.post(ctx, "/topic/unpause", url.Values{"topic": {topic}}); err != nil {
		return err
	}
	return d.post(ctx, "/channel/unpause", url.Values{"topic": {topic}, "channel": {topic + channelSuffix}})
}

// lookup asks nsqlookupd at addr for an nsqd. Of several it returns the first by address
// and port.
func lookup(ctx context.Context, addr string) (daemon, error) {
	text, _, err := call(ctx, "nsqlookupd", http.MethodGet, url.URL{Scheme: "http", Host: addr, Path: "/nodes"})
	if err != nil {
		return daemon{}, err
	}
	type node struct {
		Address string `json:"broadcast_address"`
		TCP     int    `json:"tcp_port"`
		HTTP    int    `json:"http_port"`
	}
	var answer struct {
		Nodes []node `json:"producers"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return daemon{}, fmt.Errorf("read nsqlookupd's answer: %w", err)
	}
	if len(answer.Nodes) == 0 {
		return daemon{}, errors.New("nsqlookupd lists no nsqd")
	}
	first := slices.MinFunc(answer.Nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.TCP, b.TCP))
	})
	return daemon{
		tcp:  net.JoinHostPort(first.Address, strconv.Itoa(first.TCP)),
		http: net.JoinHostPort(first.Address, strconv.Itoa(first.HTTP)),
	}, nil
}

// find returns where nsqd is: by nsqlookupd, or by its own addresses.
func find(ctx context.Context, o MirrorOptions) (daemon, error) {
	if o.LookupdAddr == "" {
		return daemon{tcp: o.NSQDTCPAddr, http: o.NSQDHTTPAddr}, nil
	}
	return lookup(ctx, o.LookupdAddr)
}
