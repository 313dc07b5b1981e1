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
	addrs, _, err := s.serve(ctx, run, "smtp")
	if err != nil {
		return err
	}
	s.SMTPAddr, s.MailDir = addrs[0], dir
	return nil
}
