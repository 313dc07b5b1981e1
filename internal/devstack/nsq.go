package devstack

import (
	"context"
	"path/filepath"
	"time"
)

// NSQDOptions are settings of nsqd by its own names. What is zero is as shipped.
type NSQDOptions struct {
	MaxMsgTimeout time.Duration `json:"max_msg_timeout"`
	MaxRdyCount   int64         `json:"max_rdy_count"`
	NoMemory      bool          `json:"no_memory"` // a mem-queue-size of 0: every message is written to disk
}

// NSQSettings are what the process of nsqd and nsqadmin gets to know.
type NSQSettings struct {
	Dir       string `json:"dir"`
	TCPAddr   string `json:"tcp_addr"`   // host:port of nsqd's protocol
	HTTPAddr  string `json:"http_addr"`  // host:port of nsqd's HTTP API
	AdminAddr string `json:"admin_addr"` // host:port of nsqadmin

	NSQD NSQDOptions `json:"nsqd"`

	// host:port of nsqlookupd's protocol and of its HTTP API; "": there is none.
	LookupTCPAddr  string `json:"lookup_tcp_addr"`
	LookupHTTPAddr string `json:"lookup_http_addr"`
}

func (s *Stack) startNSQ(ctx context.Context) error {
	run := func(ctx context.Context, addrs []string) (*child, error) {
		settings := NSQSettings{Dir: filepath.Join(s.dir, "nsq"), TCPAddr: addrs[0], HTTPAddr: addrs[1], AdminAddr: addrs[2], NSQD: s.options.NSQD}
		if len(addrs) > 3 {
			settings.LookupTCPAddr, settings.LookupHTTPAddr = addrs[3], addrs[4]
		}
		return s.launch(ctx, NSQ, "nsq", settings)
	}
	ports := []string{"nsqd_tcp", "nsqd_http", "nsqadmin"}
	if s.options.Lookupd {
		ports = append(ports, "nsqlookupd_tcp", "nsqlookupd_http")
	}
	addrs, c, err := s.serve(ctx, run, ports...)
	if err != nil {
		return err
	}
	s.NSQDTCPAddr, s.NSQDHTTPAddr, s.NSQAdminURL, s.NSQPID = addrs[0], addrs[1], "http://"+addrs[2], c.cmd.Process.Pid
	if s.options.Lookupd {
		s.NSQLookupdHTTPAddr = addrs[4]
	}
	return nil
}
