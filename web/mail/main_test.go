package mail

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// post is a registry with one admin, a mail server and a sender between them.
type post struct {
	t       testing.TB
	url     string
	db      *pgxpool.Pool
	server  *testenv.MailServer
	options Options
}

const staff = "staff@archive.org"

func newPost(t testing.TB) *post {
	t.Helper()
	p := &post{t: t, url: testenv.DatabaseURL(t), server: testenv.NewMail(t, nil)}
	db := must.Get(pgxpool.New(t.Context(), p.url))(t)
	t.Cleanup(db.Close)
	p.db = db
	p.options = optionsFor(t, p.server.Addr)
	p.exec(`INSERT INTO users (email, name, role) VALUES ($1, 'Staff Person', 'admin')`, staff)
	return p
}

func optionsFor(t testing.TB, addr string) Options {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n := must.Get(strconv.Atoi(port))(t)
	return Options{
		Host: host, Port: n, From: "Farol <farol@archive.org>", WebURL: "https://farol.archive.org", Log: slog.New(slog.DiscardHandler),
		timeout: 5 * time.Second,
	}
}

func (p *post) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.db.Exec(context.Background(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](p *post, sql string, args ...any) T {
	p.t.Helper()
	rows, _ := p.db.Query(context.Background(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (p *post) alert(subject, content string) {
	p.t.Helper()
	p.exec(`INSERT INTO alerts (type, subject, content) VALUES ('Repair Stopped', $1, $2)`, subject, content)
}

// run sends what is due, and returns the error of the run.
func (p *post) run() (Result, error) {
	p.t.Helper()
	return New(registry.New(p.db), p.options).Run(p.t.Context())
}

func (p *post) lapse() {
	p.t.Helper()
	p.exec(`UPDATE mail_outbox SET due_at = now() - interval '1 second' WHERE sent_at IS NULL AND gave_up_at IS NULL`)
}

// letter is a mail as a person's program shows it.
type letter struct {
	netmail.Header
	text, html string
}

func (p *post) letters() (list []letter) {
	p.t.Helper()
	for _, m := range p.server.Parsed(p.t) {
		l := letter{Header: m.Header}
		kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		if err != nil || kind != "multipart/alternative" {
			p.t.Fatalf("a mail is %s, %v", kind, err)
		}
		parts := multipart.NewReader(m.Body, params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				p.t.Fatal(err)
			}
			body := decoded(p.t, part.Header.Get("Content-Transfer-Encoding"), part)
			switch kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); kind {
			case "text/plain":
				l.text = body
			case "text/html":
				l.html = body
			default:
				p.t.Errorf("a part is %s", kind)
			}
		}
		list = append(list, l)
	}
	return list
}

func decoded(t testing.TB, encoding string, r io.Reader) string {
	t.Helper()
	switch encoding {
	case "quoted-printable":
		r = quotedprintable.NewReader(r)
	case "base64":
		r = base64.NewDecoder(base64.StdEncoding, r)
	}
	body := must.Get(io.ReadAll(r))(t)
	return strings.ReplaceAll(string(body), "\r\n", "\n")
}

func (l letter) subject(t testing.TB) string {
	t.Helper()
	text := must.Get(new(mime.WordDecoder).DecodeHeader(l.Get("Subject")))(t)
	return text
}

// ids are the Message-IDs of all that was received.
func (p *post) ids() (list []string) {
	p.t.Helper()
	for _, l := range p.letters() {
		list = append(list, l.Get("Message-ID"))
	}
	return list
}
