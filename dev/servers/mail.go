package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/devstack/mailbox"
)

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
