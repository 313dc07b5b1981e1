package servers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/nsqio/nsq/nsqadmin"
	"github.com/nsqio/nsq/nsqd"
	"github.com/nsqio/nsq/nsqlookupd"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// runNSQ runs nsqd and its console until in ends, then lets nsqd write its
// messages to disk.
func runNSQ(ctx context.Context, in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	var s devstack.NSQSettings
	if err := devstack.ReadSettings(r, &s); err != nil {
		return err
	}
	ctx, cancel := devstack.UntilEOF(ctx, r)
	defer cancel()

	do := nsqdOptions(s.NSQD)
	do.DataPath, do.LogLevel = s.Dir, nsqd.LOG_WARN
	do.TCPAddress, do.HTTPAddress, do.HTTPSAddress = s.TCPAddr, s.HTTPAddr, ""
	do.BroadcastAddress = "127.0.0.1"
	// As shipped, a new channel's deferred messages can be five seconds late.
	do.QueueScanInterval, do.QueueScanRefreshInterval = 50*time.Millisecond, 100*time.Millisecond
	failed := make(chan error, 3)
	if s.LookupTCPAddr != "" {
		do.NSQLookupdTCPAddresses = []string{s.LookupTCPAddr}
		end, err := runLookupd(s, failed)
		if err != nil {
			return err
		}
		defer end()
	}
	queue, err := nsqd.New(do)
	if err != nil {
		return fmt.Errorf("start nsqd: %w", err)
	}
	defer queue.Exit()
	if err := queue.LoadMetadata(); err != nil {
		return fmt.Errorf("read nsqd's topics: %w", err)
	}

	ao := nsqadmin.NewOptions()
	ao.HTTPAddress, ao.LogLevel = s.AdminAddr, nsqd.LOG_WARN
	ao.NSQDHTTPAddresses = []string{s.HTTPAddr}
	console, err := nsqadmin.New(ao)
	if err != nil {
		return fmt.Errorf("start nsqadmin: %w", err)
	}
	defer console.Exit()

	go func() { failed <- queue.Main() }()
	go func() { failed <- console.Main() }()
	if _, err := fmt.Fprintln(out, "READY", s.TCPAddr); err != nil {
		return fmt.Errorf("report ready: %w", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve nsq: %w", err)
	case <-ctx.Done():
		return nil
	}
}

func nsqdOptions(to devstack.NSQDOptions) *nsqd.Options {
	o := nsqd.NewOptions()
	if to.MaxMsgTimeout > 0 {
		o.MaxMsgTimeout = to.MaxMsgTimeout
	}
	if to.MaxRdyCount > 0 {
		o.MaxRdyCount = to.MaxRdyCount
	}
	if to.NoMemory {
		o.MemQueueSize = 0
		// A write beyond the size that the process may give a file is then an error, as
		// on a disk that is full.
		signal.Ignore(syscall.SIGXFSZ)
	}
	return o
}

// runLookupd starts the daemon that tells where nsqd is.
func runLookupd(s devstack.NSQSettings, failed chan<- error) (end func(), err error) {
	o := nsqlookupd.NewOptions()
	o.TCPAddress, o.HTTPAddress, o.BroadcastAddress, o.LogLevel = s.LookupTCPAddr, s.LookupHTTPAddr, "127.0.0.1", nsqd.LOG_WARN
	directory, err := nsqlookupd.New(o)
	if err != nil {
		return nil, fmt.Errorf("start nsqlookupd: %w", err)
	}
	go func() { failed <- directory.Main() }()
	return directory.Exit, nil
}
