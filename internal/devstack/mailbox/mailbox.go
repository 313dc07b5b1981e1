// Package mailbox catches mail: its SMTP server accepts each mail for anyone, and passes
// none on.
package mailbox

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

const (
	mostMails = 1000    // the oldest are deleted above it
	mostBytes = 1 << 20 // of a mail
)

// Mail is a mail as it came.
type Mail struct {
	From string
	To   []string
	Text []byte
}

// Box is a directory with a file for each mail. It is safe for concurrent use.
type Box struct {
	dir string
	mu  sync.Mutex
}

// Open makes the directory.
func Open(dir string) (*Box, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for mail: %w", err)
	}
	return &Box{dir: dir}, nil
}

// Keep writes a mail to a file whose name begins with the time and has its recipient.
func (b *Box) Keep(m Mail) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := time.Now().UTC().Format("20060102T150405.000000000") + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@.-_", r) {
			return r
		}
		return '_'
	}, strings.Join(m.To, ","))
	path := filepath.Join(b.dir, name[:min(len(name), 200)]+".eml")
	if err := os.WriteFile(path+".tmp", m.Text, 0o600); err != nil {
		return fmt.Errorf("keep a mail: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil { // a reader sees whole mails only
		return fmt.Errorf("keep a mail: %w", err)
	}
	kept, err := filepath.Glob(filepath.Join(b.dir, "*.eml"))
	slices.Sort(kept)
	for _, old := range kept[:max(len(kept)-mostMails, 0)] {
		if err == nil {
			err = os.Remove(old)
		}
	}
	return err
}

// Handler answers a client. An error is the server's answer; a *smtp.SMTPError has its
// own code.
type Handler struct {
	Rcpt func(to string) error                   // nil: each recipient is accepted
	Keep func(m Mail, hangUp func() error) error // is given a whole mail, before it is answered
}

// NewServer returns a server for mail.
func NewServer(h Handler) *smtp.Server {
	s := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{handler: h, conn: c}, nil
	}))
	s.Domain, s.MaxMessageBytes, s.MaxRecipients = "localhost", mostBytes, 50
	s.ReadTimeout, s.WriteTimeout = time.Minute, time.Minute
	s.ErrorLog = quiet{}
	return s
}

// quiet logs nothing: clients that go away are no news.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type session struct {
	handler Handler
	conn    *smtp.Conn
	mail    Mail
}

func (s *session) Reset()        { s.mail = Mail{} }
func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.mail = Mail{From: from}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.To = append(s.mail.To, to)
	if s.handler.Rcpt != nil {
		return s.handler.Rcpt(to)
	}
	return nil
}

func (s *session) Data(r io.Reader) (err error) {
	if s.mail.Text, err = io.ReadAll(r); err != nil {
		return err
	}
	return s.handler.Keep(s.mail, s.conn.Conn().Close)
}
