// Package servers holds what a child of a [devstack.Stack] runs: the S3 gateway,
// nsqd with nsqadmin, and the guard of a foreign server.
//
// It is apart from devstack because it is heavy, and because the gateway
// changes its process's working directory and standard output: it has to be
// alone in its process.
package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/devstack/mailbox"
)

// Run is the body of "farol-dev internal COMMAND", for the commands "s3", "nsq",
// "mail" and "guard". The first line of in has the settings; the server runs until in ends
// or ctx does. Out gets one line, "READY", when it serves. It must be called
// from the main goroutine of a process that does nothing else.
func Run(ctx context.Context, command string, in io.Reader, out io.Writer) error {
	switch command {
	case "s3":
		return runS3(ctx, in, out)
	case "nsq":
		return runNSQ(ctx, in, out)
	case "mail":
		return runMail(ctx, in, out)
	case "guard":
		return devstack.Guard(ctx, in, out)
	default:
		return fmt.Errorf("unknown internal command %q", command)
	}
}

// runMail runs the mail catcher until in ends.
func runMail(ctx context.Context, in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	var s devstack.MailSettings
	if err := devstack.ReadSettings(r, &s); err != nil {
		return err
	}
	ctx, cancel := devstack.UntilEOF(ctx, r)
	defer cancel()
	box, err := mailbox.Open(s.Dir)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("listen for mail: %w", err)
	}
	server := &mailbox.Server{Keep: func(m mailbox.Mail, _ func() error) error { return box.Keep(m) }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, "READY", s.Addr); err != nil {
		return fmt.Errorf("report ready: %w", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve mail: %w", err)
	case <-ctx.Done():
		return errors.Join(server.Close())
	}
}
