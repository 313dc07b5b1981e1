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
	"slices"
	"strconv"
)

// lookupMost bounds what is read of nsqlookupd's answer.
const lookupMost = 4 << 20

// find finds nsqd before a connection to it is made: by nsqlookupd, unless its
// addresses are known. Of several the first is taken, by address and port.
func (m *Mirror) find(ctx context.Context) error {
	if m.o.LookupdAddr == "" {
		m.nsqdHTTP = m.o.NSQDHTTPAddr
		return nil
	}
	if m.nsqd.conn != nil {
		return nil
	}
	at, err := lookup(ctx, m.o.LookupdAddr)
	if err != nil {
		return err
	}
	if m.link != nil && m.link.at != at {
		m.link.close()
		m.link = nil
	}
	m.nsqd.addr, m.nsqdHTTP = at.tcp, at.http
	return nil
}

func lookup(ctx context.Context, addr string) (daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/nodes", http.NoBody)
	if err != nil {
		return daemon{}, fmt.Errorf("ask nsqlookupd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return daemon{}, fmt.Errorf("ask nsqlookupd: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		return daemon{}, fmt.Errorf("ask nsqlookupd: %s", response.Status)
	}
	type node struct {
		Address string `json:"broadcast_address"`
		TCP     int    `json:"tcp_port"`
		HTTP    int    `json:"http_port"`
	}
	var answer struct {
		Nodes []node `json:"producers"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, lookupMost)).Decode(&answer); err != nil {
		return daemon{}, fmt.Errorf("read nsqlookupd's answer: %w", err)
	}
	if len(answer.Nodes) == 0 {
		return daemon{}, errors.New("nsqlookupd knows of no nsqd")
	}
	first := slices.MinFunc(answer.Nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.TCP, b.TCP))
	})
	return daemon{
		tcp:  net.JoinHostPort(first.Address, strconv.Itoa(first.TCP)),
		http: net.JoinHostPort(first.Address, strconv.Itoa(first.HTTP)),
	}, nil
}
