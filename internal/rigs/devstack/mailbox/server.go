package mailbox

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

const (
	mostBytes = 1 << 20     // of a mail
	patience  = time.Minute // for what a client says next
)

// Server is an SMTP server for mail to anyone. Its fields are set before it serves; only Keep
// has to be. An error of a function is what the client is answered; a [Refusal] has its own code.
type Server struct {
	TLS  *tls.Config                             // offers STARTTLS
	Rcpt func(to string) error                   // is asked about each recipient
	Keep func(m Mail, hangUp func() error) error // is given a whole mail, before it is answered

	mu     sync.Mutex
	open   map[io.Closer]bool // the listener and the connections; guarded by mu
	closed bool               // guarded by mu
}

// Refusal is an answer with a code of SMTP, such as 450 or 550.
type Refusal struct {
	Code int
	Text string
}

// Error is the answer as it is sent.
func (r Refusal) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Serve answers the clients that come to l until [Server.Close].
func (s *Server) Serve(l net.Listener) error {
	if !s.begin(l) {
		return net.ErrClosed
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if s.begin(conn) {
				s.answer(conn)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.open, conn)
			conn.Close() //nolint:errcheck // it may be closed
		}()
	}
}

// begin has Close close c, and reports whether it is not too late for that.
func (s *Server) begin(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[io.Closer]bool{}
	}
	s.open[c] = true
	return !s.closed
}

// Close ends the server and its connections.
func (s *Server) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		err = errors.Join(err, c.Close())
	}
	return err
}

// client is a client of a server, and what it has said of its next mail.
type client struct {
	*textproto.Conn
	server *Server
	conn   net.Conn
	mail   Mail
}

// answer speaks with a client until one of the two ends it.
func (s *Server) answer(conn net.Conn) {
	c := &client{textproto.NewConn(conn), s, conn, Mail{}}
	answer := "220 localhost"
	for {
		conn.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // then it waits for longer
		if answer != "" && c.PrintfLine("%s", answer) != nil || strings.HasPrefix(answer, "221") {
			return
		}
		line, err := c.ReadLine()
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		_, address, _ := strings.Cut(rest, "<")
		address, _, _ = strings.Cut(address, ">")
		answer = c.command(strings.ToUpper(verb), address)
	}
}

// command does what a client says, and returns the answer; "" if it has been answered.
func (c *client) command(verb, address string) string {
	switch verb {
	case "HELO", "NOOP":
	case "EHLO":
		offers := fmt.Sprintf("250-localhost\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SIZE %d\r\n", mostBytes)
		if c.server.TLS != nil {
			offers += "250-STARTTLS\r\n"
		}
		return offers + "250 HELP"
	case "STARTTLS":
		if c.server.TLS == nil {
			return "502 no TLS"
		}
		c.PrintfLine("220 begin") //nolint:errcheck // the next line is not read then
		c.conn = tls.Server(c.conn, c.server.TLS)
		c.Conn, c.mail = textproto.NewConn(c.conn), Mail{}
		return ""
	case "RSET":
		c.mail = Mail{}
	case "MAIL":
		c.mail = Mail{From: address}
	case "RCPT":
		c.mail.To = append(c.mail.To, address)
		if c.server.Rcpt != nil {
			return said(c.server.Rcpt(address))
		}
	case "DATA":
		return c.data()
	case "QUIT":
		return "221 bye"
	default:
		return "502 unknown"
	}
	return said(nil)
}

// data takes a mail in.
func (c *client) data() string {
	if err := c.PrintfLine("354 go on"); err != nil {
		return said(err)
	}
	text, err := io.ReadAll(io.LimitReader(c.DotReader(), mostBytes+1))
	if err != nil {
		return said(err)
	}
	if len(text) > mostBytes {
		return "552 too large"
	}
	c.mail.Text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	return said(c.server.Keep(c.mail, c.conn.Close))
}

// said is the answer for an error.
func said(err error) string {
	var r Refusal
	switch {
	case err == nil:
		return "250 done"
	case errors.As(err, &r):
		return r.Error()
	default:
		return "554 " + strings.Join(strings.Fields(err.Error()), " ")
	}
}
