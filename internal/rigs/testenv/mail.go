package testenv

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/mail"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/devstack/mailbox"
)

// MailServer is an SMTP server that keeps what it is given. It is safe for concurrent use.
type MailServer struct {
	Addr string // host:port

	mu     sync.Mutex
	mails  []mailbox.Mail
	faults MailFaults
}

// MailFaults are what a mail server does wrong. What is nil works.
type MailFaults struct {
	Rcpt     func(to string) error // before a recipient is accepted
	Received func() error          // after a mail was kept, before it is answered
	HangUp   bool                  // closes the connection in place of that answer
}

// NewMail returns a mail server of the test's own. With a configuration it offers STARTTLS.
func NewMail(t testing.TB, config *tls.Config) *MailServer {
	t.Helper()
	s := &MailServer{}
	server := &mailbox.Server{TLS: config, Rcpt: s.rcpt, Keep: s.keep}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("testenv: start a mail server:", err)
	}
	s.Addr = l.Addr().String()
	go server.Serve(l) //nolint:errcheck // it ends when it is closed
	t.Cleanup(func() {
		server.Close() //nolint:errcheck // it may be closed
	})
	return s
}

// Fail has the server do something wrong from now on; the zero value nothing.
func (s *MailServer) Fail(f MailFaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Refusal is an answer of a mail server, such as 450 or 550.
func Refusal(code int, text string) error {
	return mailbox.Refusal{Code: code, Text: text}
}

func (s *MailServer) now() MailFaults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func (s *MailServer) rcpt(to string) error {
	if f := s.now().Rcpt; f != nil {
		return f(to)
	}
	return nil
}

func (s *MailServer) keep(m mailbox.Mail, hangUp func() error) error {
	s.mu.Lock()
	s.mails = append(s.mails, m)
	s.mu.Unlock()
	f := s.now()
	if f.Received != nil {
		if err := f.Received(); err != nil {
			return err
		}
	}
	if f.HangUp {
		return hangUp()
	}
	return nil
}

// Mails are all that were received so far.
func (s *MailServer) Mails() []mailbox.Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]mailbox.Mail{}, s.mails...)
}

// Parsed are the headers and bodies of all that were received so far.
func (s *MailServer) Parsed(t testing.TB) (list []*mail.Message) {
	t.Helper()
	for _, m := range s.Mails() {
		parsed, err := mail.ReadMessage(bytes.NewReader(m.Text))
		if err != nil {
			t.Fatalf("testenv: read a mail: %v\n%s", err, m.Text)
		}
		list = append(list, parsed)
	}
	return list
}
