package settings

import (
	"net/url"
	"strconv"

	"github.com/farol-preservation/farol/storage"
)

// Remote is the server of the REST API through which commands work that have no database.
type Remote struct {
	Server string         `env:"FAROL_SERVER" is:"an http or https URL such as https://farol.example.org" doc:"Server of the REST API through which commands work, as with --server, instead of the database. Not for services"`
	Token  storage.Secret `env:"FAROL_TOKEN" doc:"Personal token, or one of a service, for that server"`
}

func (c *Remote) check(s *reader) {
	if c.Server == "" {
		return
	}
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil:
		s.wrong("FAROL_SERVER", "is "+strconv.Quote(c.Server)+"; it must be "+allowed(c, "Server"))
	case u.Scheme == "http" && !loopback(u.Hostname()):
		s.wrong("FAROL_SERVER", "is "+strconv.Quote(c.Server)+", which is not encrypted: the token would be read on the way; name an https URL")
	case c.Token == "":
		s.wrong("FAROL_TOKEN", "is not set; make a personal token in the browser (POST /api/v1/me/tokens), and set FAROL_TOKEN, or give --token")
	}
}
