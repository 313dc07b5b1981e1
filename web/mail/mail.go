// Package mail sends what the outbox holds.
//
// A mail is sent first and noted afterwards. If the sender dies in between, the mail is
// sent again, with the same Message-ID: none is lost, and a copy can be recognized.
//
// No mail decides anything. Its links lead to pages behind the sign-in, and it has neither
// images nor other content from elsewhere.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/outbox"
)

// Options say where mail goes, and who sends it.
type Options struct {
	Host     string
	Port     int
	Implicit bool // TLS from the first byte; otherwise by STARTTLS, without which no mail is sent but to a loopback address
	User     string
	Password func() string // of each connection, since it may be replaced; nil: there is no User
	From     string        // an address, with or without a name
	WebURL   string        // under which the pages are; "": mails have no links
	// Link makes the secret of a link with which a person sets a password, when the mail
	// with it is sent. kind is outbox.KindInvite or outbox.KindReset. nil: there are no
	// such mails.
	Link func(ctx context.Context, kind string, userID int64) (secret string, err error)
	// Traces has mails about an item name its trace.
	Traces bool
	Log    *slog.Logger

	timeout time.Duration // for a step of the exchange; mostStep if 0
	tls     *tls.Config   // nil: the system's authorities
	dial    mail.DialContextFunc
}

const (
	mostStep  = 30 * time.Second
	batch     = 20              // mails that are claimed at once
	lease     = 5 * time.Minute // for which they are ours
	mostBreak = 2               // failures of the connection in a row, after which the server is left alone
	noteTime  = 10 * time.Second
)

// Sender sends the mail of a registry. It is safe for concurrent use.
type Sender struct {
	records outbox.Records
	options Options
}

// New returns a sender. It connects when there is mail.
func New(r *registry.Registry, o Options) *Sender { return &Sender{outbox.In(r), o} }

// Result is what a run came to.
type Result struct{ Sent, Failed, GaveUp, Withdrawn int }

// String is the result for people.
func (r Result) String() string {
	if r == (Result{}) {
		return "nothing to send"
	}
	return fmt.Sprintf("sent: %d, failed: %d, given up: %d, withdrawn: %d", r.Sent, r.Failed, r.GaveUp, r.Withdrawn)
}

// Run sends all that is due. A mail that the server refuses is tried again later, and is
// no error; a server that cannot be reached is one.
func (s *Sender) Run(ctx context.Context) (total Result, err error) {
	if err := s.records.Tidy(ctx); err != nil {
		return total, err
	}
	for ctx.Err() == nil {
		list, err := s.records.Claim(ctx, batch, lease)
		if err != nil || len(list) == 0 {
			return total, err
		}
		if err := s.send(ctx, list, &total); err != nil {
			return total, err
		}
		if len(list) < batch {
			break
		}
	}
	return total, nil
}

// send sends mails that were claimed. What it has no time for is due again when its lease
// ends.
func (s *Sender) send(ctx context.Context, list []outbox.Mail, total *Result) error {
	c := connection{options: s.options}
	defer c.close()
	began, broken := time.Now(), 0
	for _, m := range list {
		if ctx.Err() != nil || time.Since(began) > lease/2 {
			return nil
		}
		if m.Total == 0 && (m.Kind == outbox.KindAlert || m.Kind == outbox.KindDigest) {
			if err := s.records.Withdraw(ctx, m.ID, "it does not concern the person any more"); err != nil {
				return err
			}
			total.Withdrawn++
			continue
		}
		var failure error
		if broken < mostBreak {
			failure = s.deliver(ctx, &c, m)
		} else {
			failure = c.last
		}
		if failure != nil && c.last != nil {
			broken++
		} else {
			broken = 0
		}
		if err := s.note(ctx, m, failure, total); err != nil {
			return err
		}
	}
	if broken >= mostBreak || broken == len(list) {
		return fmt.Errorf("send mail by %s: %w", s.options.Address(), c.last)
	}
	return nil
}

func (s *Sender) deliver(ctx context.Context, c *connection, m outbox.Mail) error {
	c.last = nil // a text that cannot be written is no fault of the connection
	msg, err := s.compose(ctx, m)
	if err != nil {
		return err
	}
	return c.send(ctx, msg)
}

// note records what came of a mail, also if the process is asked to stop.
func (s *Sender) note(ctx context.Context, m outbox.Mail, failure error, total *Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	log := s.options.Log.With("mail", m.ID, "kind", m.Kind, "attempt", m.Attempt)
	if failure == nil {
		total.Sent++
		log.DebugContext(ctx, "mail sent")
		return s.records.Sent(ctx, m.ID)
	}
	gaveUp, err := s.records.Failed(ctx, m, clean(failure.Error(), mostError))
	total.Failed++
	if gaveUp {
		total.GaveUp++
		log.ErrorContext(ctx, "mail given up; an alert names the person", "err", failure)
	} else {
		log.WarnContext(ctx, "mail not sent; will retry", "err", failure)
	}
	return err
}

// mostError is how much is kept of what a server says.
const mostError = 500

// connection is an SMTP session that is opened when it is needed, and again after an error.
type connection struct {
	options Options
	client  *mail.Client
	last    error // of the connection; nil after an answer of the server about a mail
}

func (c *connection) send(ctx context.Context, msg *mail.Msg) error {
	c.last = nil
	if c.client == nil {
		client, err := c.options.client()
		if err == nil {
			err = client.DialWithContext(ctx)
		}
		if err != nil {
			c.last = fmt.Errorf("connect to the mail server: %w", err)
			return c.last
		}
		c.client = client
	}
	err := c.client.Send(msg)
	if msg.IsDelivered() { // what fails after that is for the next one
		if err != nil {
			c.close()
		}
		return nil
	}
	if err == nil {
		err = errors.New("the mail server has not accepted it")
	}
	c.close()
	var answer *mail.SendError
	if !errors.As(err, &answer) || answer.ErrorCode() == 0 {
		c.last = err
	}
	return err
}

func (c *connection) close() {
	if c.client != nil {
		c.client.Close() //nolint:errcheck // all that was sent has been answered
		c.client = nil
	}
}

// Loopback reports whether a host is this machine by its name or address, so that nobody
// else can read what is sent to it.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Address is the server's host:port.
func (o Options) Address() string { return net.JoinHostPort(o.Host, fmt.Sprint(o.Port)) }

// client is what go-mail needs to know.
func (o Options) client() (*mail.Client, error) {
	step := o.timeout
	if step == 0 {
		step = mostStep
	}
	policy := mail.TLSMandatory
	if Loopback(o.Host) {
		policy = mail.NoTLS
	}
	options := []mail.Option{mail.WithPort(o.Port), mail.WithTimeout(step), mail.WithTLSPolicy(policy)}
	if o.Implicit {
		options = append(options, mail.WithSSL())
	}
	if o.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.User), mail.WithPassword(o.Password()))
	}
	if o.tls != nil {
		options = append(options, mail.WithTLSConfig(o.tls))
	}
	if o.dial != nil {
		options = append(options, mail.WithDialContextFunc(o.dial))
	}
	return mail.NewClient(o.Host, options...)
}

// SendTest sends one mail now, whatever is in the outbox, and returns the answer of the
// server.
func SendTest(ctx context.Context, o Options, to string) (answer string, err error) {
	msg, err := o.message(to, "", "test-"+time.Now().UTC().Format("20060102T150405.000000000"), page{
		title: "Test mail from Farol",
		parts: []part{{text: "Farol can send mail. A person has asked for this test with farol mail test. There is nothing to do."}},
	})
	if err != nil {
		return "", err
	}
	c := connection{options: o}
	defer c.close()
	if err := c.send(ctx, msg); err != nil {
		return "", err
	}
	return clean(msg.ServerResponse(), mostError), nil
}
