package devstack

import (
	"context"
	"path/filepath"
)

// MailSettings are what the mail catcher's process gets to know.
type MailSettings struct {
	Addr string `json:"addr"` // host:port
	Dir  string `json:"dir"`  // for the mails, one .eml file for each
}

func (s *Stack) startMail(ctx context.Context) error {
	dir := filepath.Join(s.dir, "mail")
	run := func(ctx context.Context, addrs []string) (*child, error) {
		return s.launch(ctx, Mail, "mail", MailSettings{Addr: addrs[0], Dir: dir})
	}
	addrs, c, err := s.onPorts(ctx, []string{"smtp"}, run)
	if err != nil {
		return err
	}
	s.keep(ctx, c, &server{
		again:   func(ctx context.Context) (*child, error) { return run(ctx, addrs) },
		answers: func(ctx context.Context) bool { return listens(ctx, addrs[0]) },
	})
	s.SMTPAddr, s.MailDir = addrs[0], dir
	return nil
}
