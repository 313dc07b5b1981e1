package mail

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/outbox"
)

// Each alert arrives once, as a mail that programs recognize as a machine's.
func TestAlertsArrive(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.alert("Repair has stopped at AWS", "Nothing of AWS is repaired.\nAsk <the admins> & others.")
	if r, err := p.run(); err != nil || r != (Result{Sent: 1}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := p.run(); err != nil || r != (Result{}) {
		t.Errorf("a second run: %+v, %v", r, err)
	}
	letters := p.letters()
	if len(letters) != 1 {
		t.Fatalf("%d mails", len(letters))
	}
	l := letters[0]
	for header, want := range map[string]string{
		"From": `"Farol" <farol@archive.org>`, "To": `"Staff Person" <staff@archive.org>`, "Subject": "Repair has stopped at AWS",
		"Auto-Submitted": "auto-generated", "List-Unsubscribe": "<https://farol.archive.org/account/mail>",
		"Message-Id": "<" + value[string](p, `SELECT message_id::text FROM mail_outbox`) + "@archive.org>",
	} {
		if got := l.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	if !strings.Contains(l.text, "Ask <the admins> & others.\nhttps://farol.archive.org/alerts/1\n") || !strings.Contains(l.html, "Ask &lt;the admins&gt; &amp; others.") {
		t.Errorf("text:\n%s\nHTML:\n%s", l.text, l.html)
	}
	if body := strings.ToLower(l.html); strings.Contains(body, "<img") || strings.Contains(body, "src=") || strings.Contains(body, "<form") || strings.Contains(body, "url(") {
		t.Errorf("the HTML loads or sends something: %s", l.html)
	}
}

// Another address is reported to the one before, which the new one may not be told.
func TestOldAddressIsMailed(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`UPDATE users SET email = upper(email), name = 'Staff Person'`)
	if r, err := p.run(); err != nil || r != (Result{}) {
		t.Errorf("the same address: %+v, %v", r, err)
	}
	p.exec(`UPDATE users SET email = 'thief@elsewhere.org'`)
	if list, err := outbox.In(registry.New(p.db)).Queue(t.Context(), 9, false); err != nil || len(list) != 1 || !strings.EqualFold(list[0].Email, "staff@archive.org") {
		t.Errorf("%+v, %v", list, err)
	}
	if r, err := p.run(); err != nil || r != (Result{Sent: 1}) {
		t.Fatalf("%+v, %v", r, err)
	}
	letters := p.letters()
	if len(letters) != 1 {
		t.Fatalf("%d mails", len(letters))
	}
	l := letters[0]
	if !strings.Contains(strings.ToLower(l.Get("To")), "<staff@archive.org>") || !strings.Contains(l.text, "contact the archive's staff at once") || strings.Contains(l.text+l.html, "thief") {
		t.Errorf("to %s:\n%s", l.Get("To"), l.text)
	}
}

func TestWithoutPagesThereAreNoLinks(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.options.WebURL = ""
	p.alert("S", "C")
	if r, err := p.run(); err != nil || r.Sent != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	l := p.letters()[0]
	if strings.Contains(l.text+l.html, "http") || l.Get("List-Unsubscribe") != "<mailto:farol@archive.org?subject=unsubscribe>" {
		t.Errorf("%s %s %s", l.Get("List-Unsubscribe"), l.text, l.html)
	}
}

// No name, subject or address adds a header, a recipient or a tag.
func TestNothingIsInjected(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	const evil = "x\r\nBcc: victim@evil.org\r\n\r\n<script>alert(1)</script>\u202e\u2028\x1b\x00"
	name := "\"A\" <victim@evil.org>,\r\nBcc: victim@evil.org"
	p.exec(`UPDATE users SET name = $1`, name)
	p.alert(strings.ReplaceAll(evil, "\x00", ""), strings.ReplaceAll(evil, "\x00", ""))
	if r, err := p.run(); err != nil || r.Sent != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if to := p.server.Mails()[0].To; len(to) != 1 || to[0] != staff {
		t.Errorf("it went to %q", to)
	}
	l := p.letters()[0]
	to, err := l.AddressList("To")
	if err != nil || len(to) != 1 || to[0].Address != staff || to[0].Name != `"A" <victim@evil.org>, Bcc: victim@evil.org` {
		t.Errorf("To: %v, %v", to, err)
	}
	if l.Get("Bcc") != "" || len(l.Header) > 12 {
		t.Errorf("headers: %v", l.Header)
	}
	if s := l.subject(t); s != "x Bcc: victim@evil.org <script>alert(1)</script>" {
		t.Errorf("subject %q", s)
	}
	if strings.Contains(l.html, "<script") || strings.ContainsAny(l.subject(t)+l.text+l.html, "\u202e\u2028\x1b") {
		t.Errorf("body: %s", l.html)
	}
	for _, address := range []string{"a@b.org>\r\nRCPT TO:<c@d.org", "A <a@b.org>", "a@b.org, c@d.org", ""} {
		if _, err := p.options.message(address, "", "id", page{}); err == nil {
			t.Errorf("%q is an address to send mail to", address)
		}
	}
}

// What fails is sent again: with the same Message-ID, since it may have arrived.
func TestMailSurvivesTheServer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	for name, c := range map[string]struct {
		fault    testenv.MailFaults
		received int // during the fault
		broken   bool
	}{
		"refuses for now":       {testenv.MailFaults{Rcpt: func(string) error { return testenv.Refusal(450, "try later") }}, 0, false},
		"refuses the recipient": {testenv.MailFaults{Rcpt: func(string) error { return testenv.Refusal(550, "no such user") }}, 0, false},
		"refuses the content":   {testenv.MailFaults{Received: func() error { return testenv.Refusal(451, "disk full") }}, 1, false},
		"hangs up after DATA":   {testenv.MailFaults{HangUp: true}, 1, true},
		"stalls at RCPT":        {testenv.MailFaults{Rcpt: func(string) error { <-release; return nil }}, 0, true},
		"stalls after DATA":     {testenv.MailFaults{Received: func() error { <-release; return nil }}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPost(t)
			p.options.timeout = 300 * time.Millisecond
			p.alert("Important", "C")
			p.server.Fail(c.fault)
			r, err := p.run()
			if r != (Result{Failed: 1}) || (err != nil) != c.broken || len(p.ids()) != c.received {
				t.Errorf("during the fault: %+v, %v, %d received", r, err, len(p.ids()))
			}
			if why := value[string](p, `SELECT error FROM mail_outbox WHERE attempts = 1 AND due_at > now()`); why == "" {
				t.Error("the outbox does not say why")
			}
			p.server.Fail(testenv.MailFaults{})
			p.options.timeout = 5 * time.Second
			p.lapse()
			if r, err := p.run(); err != nil || r != (Result{Sent: 1}) {
				t.Errorf("after it: %+v, %v", r, err)
			}
			ids := p.ids()
			if len(ids) != c.received+1 {
				t.Errorf("%d mails", len(ids))
			}
			for _, id := range ids {
				if id != ids[0] {
					t.Errorf("copies have different Message-IDs: %q", ids)
				}
			}
		})
	}
	t.Cleanup(func() { close(release) })
}

// One mail that a server refuses keeps none of the others.
func TestOneRefusedMailKeepsNoOther(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`INSERT INTO users (email, name, role) VALUES ('bad@archive.org', 'Bad', 'admin'), ('zoe@archive.org', 'Zoe', 'admin')`)
	p.server.Fail(testenv.MailFaults{Rcpt: func(to string) error {
		if to == "bad@archive.org" {
			return testenv.Refusal(550, "no such user")
		}
		return nil
	}})
	p.alert("S", "C")
	if r, err := p.run(); err != nil || r != (Result{Sent: 2, Failed: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A server that is away is asked twice, however much there is to send.
func TestAServerThatIsAwayIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	proxy := testenv.NewProxy(t, p.server.Addr)
	p.options = optionsFor(t, proxy.Addr())
	for range 15 {
		p.alert("S", "C")
	}
	proxy.Cut()
	if r, err := p.run(); err == nil || r.Failed != 15 || proxy.Refused() != mostBreak {
		t.Errorf("%+v, %v, %d connections", r, err, proxy.Refused())
	}
	proxy.Resume()
	p.lapse()
	if r, err := p.run(); err != nil || r != (Result{Sent: 15}) || proxy.Connections() != 1 {
		t.Errorf("%+v, %v, %d connections", r, err, proxy.Connections())
	}
}

// If the database goes away between the answer of the server and the note, the mail is
// sent again.
func TestMailIsSentAgainIfItIsNotNoted(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.alert("S", "C")
	p.server.Fail(testenv.MailFaults{Received: func() error {
		p.exec(`ALTER TABLE mail_outbox RENAME TO gone`) // as it is for a sender that cannot reach it
		return nil
	}})
	if _, err := p.run(); err == nil {
		t.Error("the note was written")
	}
	p.server.Fail(testenv.MailFaults{})
	p.exec(`ALTER TABLE gone RENAME TO mail_outbox`)
	p.lapse()
	if r, err := p.run(); err != nil || r.Sent != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if ids := p.ids(); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("Message-IDs: %q", ids)
	}
}

// Kill -9 after the server has the mail and before the sender knows.
func TestAKilledSenderLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.alert("S", "C")
	var received atomic.Int32
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	first := make(chan struct{})
	p.server.Fail(testenv.MailFaults{Received: func() error {
		if received.Add(1) == 1 {
			close(first)
			<-release
		}
		return nil
	}})
	env := []string{"FAROL_DATABASE_URL=" + p.url, "FAROL_SMTP_URL=smtp://" + p.server.Addr, "FAROL_MAIL_FROM=farol@archive.org"}
	args := []string{testenv.Binary(t), "schedule", "run", "send-mail"}
	killed := testenv.Start(t, args, env...)
	<-first
	must.Do(t, killed.Process.Signal(syscall.SIGKILL))
	<-killed.Ended //nolint:errcheck // it was killed
	if value[bool](p, `SELECT bool_or(sent_at IS NOT NULL) FROM mail_outbox`) {
		t.Error("a mail is noted as sent that nobody has noted")
	}
	p.lapse()
	p.exec(`UPDATE schedules SET held_until = '-infinity' WHERE job = 'send-mail'`)
	if err := <-testenv.Start(t, args, env...).Ended; err != nil {
		t.Fatal(err)
	}
	if ids := p.ids(); len(ids) != 2 || ids[0] != ids[1] || !value[bool](p, `SELECT bool_and(sent_at IS NOT NULL) FROM mail_outbox`) {
		t.Errorf("Message-IDs: %q", ids)
	}
}

// certificate is one for mail.test, with its authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"mail.test"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	parsed := must.Get(x509.ParseCertificate(der))(t)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A server elsewhere gets nothing in clear, and nothing if its certificate is another's.
func TestTLSIsRequired(t *testing.T) {
	t.Parallel()
	cert, authority := certificate(t)
	for _, c := range []struct {
		name, host string
		server     *tls.Config
		roots      *x509.CertPool
		sent       int
	}{
		{"no STARTTLS", "mail.test", nil, authority, 0},
		{"STARTTLS", "mail.test", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, authority, 1},
		{"another's certificate", "other.test", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, authority, 0},
		{"an unknown authority", "mail.test", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, x509.NewCertPool(), 0},
		{"this machine", "localhost", nil, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.NewMail(t, c.server)
			o := optionsFor(t, server.Addr)
			o.Host = c.host
			o.tls = &tls.Config{ServerName: c.host, RootCAs: c.roots, MinVersion: tls.VersionTLS12}
			o.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, server.Addr)
			}
			answer, err := SendTest(t.Context(), o, staff)
			if n := len(server.Mails()); n != c.sent || (err == nil) != (c.sent == 1) {
				t.Errorf("%d mails arrived, %q, %v", n, answer, err)
			}
		})
	}
}

// Files of an object with restricted access are named in no mail, nor are those of an
// object that is perhaps none yet.
func TestRestrictedNamesAreHidden(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`INSERT INTO institutions (id, name, identifier, receiving_bucket, restore_bucket) OVERRIDING SYSTEM VALUE VALUES (1001, 'University A', 'a.edu', 'receiving.a.edu', 'restore.a.edu')`)
	p.exec(`INSERT INTO users (email, name, institution_id, role) VALUES ('user@a.edu', 'User', 1001, 'institutional_user')`)
	for _, access := range []string{"restricted", "institution"} {
		p.exec(`INSERT INTO intellectual_objects (institution_id, identifier, bag_name, title, access, bagit_profile_identifier, etag)
			VALUES (1001, 'a.edu/' || $1::text, $1, 'T', $1, 'profile', md5($1::text))`, access)
		p.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, size, file_format, storage_option, last_fixity_check)
			SELECT 1001, id, identifier || '/data/secret-name.txt', gen_random_uuid(), 1, 'text/plain', 'Standard', now() FROM intellectual_objects WHERE access = $1`, access)
		p.exec(`INSERT INTO alerts (institution_id, type, subject, content, generic_file_id)
			SELECT 1001, 'Failed Fixity Check', 'Failed fixity check: ' || identifier, 'The copy of ' || identifier || ' is altered.', id FROM generic_files WHERE identifier LIKE 'a.edu/' || $1 || '/%'`, access)
	}
	p.exec(`INSERT INTO alerts (institution_id, type, subject, content, work_item_id) VALUES (1001, 'Item Failed', 'Item 7 failed at Validate: new.tar', 'The file data/secret-name.txt is missing.', 7)`)
	p.lapse()
	if r, err := p.run(); err != nil || r.Sent != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	got := map[string]bool{}
	for _, l := range p.letters() {
		got[l.subject(t)] = strings.Contains(l.subject(t)+l.text+l.html, "secret-name")
	}
	for subject, named := range map[string]bool{
		"Failed Fixity Check": false, "Failed fixity check: a.edu/institution/data/secret-name.txt": true, "Item 7 failed at Validate: new.tar": false,
	} {
		if n, there := got[subject]; !there || n != named {
			t.Errorf("%s: there %v, named %v; want %v", subject, there, n, named)
		}
	}
}

// The link to set a password is made when its mail is sent, for that person, and is kept
// nowhere else.
func TestLinksAreMadeWhenTheyAreSent(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`INSERT INTO mail_outbox (user_id, kind) SELECT id, k FROM users, unnest('{invite,reset}'::text[]) k`)
	if r, err := p.run(); err != nil || r != (Result{Failed: 2}) {
		t.Errorf("without a maker of links: %+v, %v", r, err)
	}
	asked := map[string]int64{}
	p.options.Link = func(_ context.Context, kind string, user int64) (string, error) {
		asked[kind] = user
		if kind == "reset" {
			return "", errors.New("not this one")
		}
		return "S3cret", nil
	}
	p.lapse()
	if r, err := p.run(); err != nil || r != (Result{Sent: 1, Failed: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	user := value[int64](p, `SELECT id FROM users`)
	if asked["invite"] != user || asked["reset"] != user {
		t.Errorf("links were made for %v", asked)
	}
	if l := p.letters()[0]; !strings.Contains(l.text, "https://farol.archive.org/password/S3cret\n") {
		t.Errorf("the mail is %s", l.text)
	}
	if n := value[int64](p, `SELECT count(*) FROM mail_outbox m WHERE to_jsonb(m)::text LIKE '%S3cret%'`); n != 0 {
		t.Error("the outbox has the secret")
	}
}

func TestDigestsListAlerts(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`INSERT INTO mail_settings (user_id, fixity) SELECT id, 'daily' FROM users`)
	p.alert("First", "One")
	p.alert("Second", "Two")
	p.lapse()
	if r, err := p.run(); err != nil || r != (Result{Sent: 1}) {
		t.Fatalf("%+v, %v", r, err)
	}
	l := p.letters()[0]
	if l.subject(t) != "2 alerts from Farol" || !strings.Contains(l.text, "* Second\n") || !strings.Contains(l.text, "https://farol.archive.org/alerts/1\n") {
		t.Errorf("%s\n%s", l.subject(t), l.text)
	}
}

// The sender stops between two mails, and what is left is due for the next one.
func TestASenderThatIsStopped(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.server.Fail(testenv.MailFaults{Received: func() error { cancel(); return nil }})
	p.alert("S", "C")
	p.alert("S", "C")
	if r, err := New(registry.New(p.db), p.options).Run(ctx); err != nil || r != (Result{Sent: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	p.lapse()
	if r, err := p.run(); err != nil || r != (Result{Sent: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
}
