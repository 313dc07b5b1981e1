package settings

import (
	"net"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// Mail is how alerts are sent by mail.
type Mail struct {
	SMTP     string         `env:"FAROL_SMTP_URL" is:"a URL such as smtps://mail.example.org:465, or smtp://mail.example.org:587 for STARTTLS, with user@ before the host if that asks for one" doc:"Mail server, and the user that signs in there. TLS is required unless the host is this machine. Without it no mail is sent; alerts stay visible"`
	Password storage.Secret `env:"FAROL_SMTP_PASSWORD" is:"a password" doc:"Password of that user"`
	From     string         `env:"FAROL_MAIL_FROM" is:"an e-mail address such as 'Farol <farol@example.org>'" doc:"Sender of the mail. Required with FAROL_SMTP_URL"`
	Every    time.Duration  `env:"FAROL_MAIL_INTERVAL" envDefault:"30s" min:"0" doc:"Time between two rounds that send mail; 0 disables them"`

	site     Site
	server   SMTPServer
	passFile file
}

// CurrentPassword is that of a connection that is to be made now.
func (c *Mail) CurrentPassword() string { return c.passFile.now(c.Password) }

// WebURL is where links lead; "": mail has none.
func (c *Mail) WebURL() string { return c.site.WebURL }

// SMTPServer is a mail server.
type SMTPServer struct {
	Host     string
	Port     int
	Implicit bool // TLS from the first byte, otherwise by STARTTLS
	User     string
}

// Server is the mail server; ok is false if there is none.
func (c *Mail) Server() (server SMTPServer, ok bool) { return c.server, c.server.Host != "" }

// Mailer is [Mail] for a command that cannot do without a server.
type Mailer struct{ Mail }

func (c *Mailer) check(s *reader) {
	if c.SMTP == "" {
		s.wrong("FAROL_SMTP_URL", "is not set; it must be "+allowed(&c.Mail, "SMTP"))
	}
}

// check says what belongs together: a process that finds out at the first alert that
// it cannot send any would be too late.
func (c *Mail) check(s *reader) {
	s.read(&c.site)
	c.passFile = s.file("FAROL_SMTP_PASSWORD")
	if c.From != "" {
		if _, err := mail.ParseAddress(c.From); err != nil || strings.ContainsAny(c.From, "\r\n") {
			s.wrong("FAROL_MAIL_FROM", "is "+strconv.Quote(c.From)+"; it must be "+allowed(c, "From"))
		}
	}
	if c.SMTP == "" {
		if c.Password != "" {
			s.wrong("FAROL_SMTP_URL", "is not set, although FAROL_SMTP_PASSWORD is; it must be "+allowed(c, "SMTP"))
		}
		return
	}
	server, why := smtpServer(c.SMTP)
	c.server = server
	switch {
	case why != "": // without the URL, in which there may be a password
		s.wrong("FAROL_SMTP_URL", why+"; it must be "+allowed(c, "SMTP"))
	case server.User != "" && c.Password == "":
		s.wrong("FAROL_SMTP_PASSWORD_FILE", "is not set, although FAROL_SMTP_URL names a user; it must be the path of a file with "+allowed(c, "Password"))
	case server.User == "" && c.Password != "":
		s.wrong("FAROL_SMTP_URL", "names no user, although FAROL_SMTP_PASSWORD is set; it must be "+allowed(c, "SMTP"))
	}
	if c.From == "" {
		s.wrong("FAROL_MAIL_FROM", "is not set, although FAROL_SMTP_URL is; it must be "+allowed(c, "From"))
	}
}

// smtpServer reads the URL of a mail server, and says what is wrong with it.
func smtpServer(text string) (server SMTPServer, why string) {
	u, err := url.Parse(text)
	if err != nil {
		return server, "cannot be read"
	}
	if _, set := u.User.Password(); set {
		return server, "contains a password, which belongs into FAROL_SMTP_PASSWORD_FILE"
	}
	server = SMTPServer{Host: u.Hostname(), Port: 587, Implicit: u.Scheme == "smtps", User: u.User.Username()}
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return SMTPServer{}, "does not begin with smtp:// or smtps://"
	case u.RawQuery != "" || u.Fragment != "": // as other programs have them: ?tls=off
		return SMTPServer{}, "has options after the host; mail is only sent with TLS, which cannot be switched off"
	case server.Host == "" || strings.Trim(u.Path, "/") != "" || u.Opaque != "":
		return SMTPServer{}, "names no host, or more than a host"
	}
	if server.Implicit {
		server.Port = 465
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return SMTPServer{}, "has no port from 1 to 65535"
		}
		server.Port = int(n)
	}
	return server, ""
}

// wrongWebURL says what is wrong with the URL of the console: a link in mail that leads
// to a sign-in has to be encrypted.
func wrongWebURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, "\r\n<> \""):
		return "which is no address of pages"
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	}
	return "which is not encrypted"
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
