package devstack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// NSQDOptions are settings of nsqd by its own names. What is zero is as shipped.
type NSQDOptions struct {
	MaxMsgTimeout time.Duration `json:"max_msg_timeout"`
	MaxRdyCount   int64         `json:"max_rdy_count"`
	NoMemory      bool          `json:"no_memory"` // a mem-queue-size of 0: every message is written to disk
}

// NSQSettings are what the process of nsqd and nsqadmin gets to know.
type NSQSettings struct {
	Dir       string `json:"dir"`
	TCPAddr   string `json:"tcp_addr"`   // host:port of nsqd's protocol
	HTTPAddr  string `json:"http_addr"`  // host:port of nsqd's HTTP API
	AdminAddr string `json:"admin_addr"` // host:port of nsqadmin

	NSQD NSQDOptions `json:"nsqd"`

	// host:port of nsqlookupd's protocol and of its HTTP API; "": there is none.
	LookupTCPAddr  string `json:"lookup_tcp_addr"`
	LookupHTTPAddr string `json:"lookup_http_addr"`
}

func (s *Stack) startNSQ(ctx context.Context) error {
	run := func(ctx context.Context, addrs []string) (*child, error) {
		settings := NSQSettings{Dir: filepath.Join(s.dir, "nsq"), TCPAddr: addrs[0], HTTPAddr: addrs[1], AdminAddr: addrs[2], NSQD: s.options.NSQD}
		if len(addrs) > 3 {
			settings.LookupTCPAddr, settings.LookupHTTPAddr = addrs[3], addrs[4]
		}
		return s.launch(ctx, NSQ, "nsq", settings)
	}
	ports := []string{"nsqd_tcp", "nsqd_http", "nsqadmin"}
	if s.options.Lookupd {
		ports = append(ports, "nsqlookupd_tcp", "nsqlookupd_http")
	}
	addrs, c, err := s.serve(ctx, run, ports...)
	if err != nil {
		return err
	}
	s.NSQDTCPAddr, s.NSQDHTTPAddr, s.NSQAdminURL, s.NSQPID = addrs[0], addrs[1], "http://"+addrs[2], c.cmd.Process.Pid
	if s.options.Lookupd {
		s.NSQLookupdHTTPAddr = addrs[4]
	}
	return nil
}

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

// What the clamd of a stack finds, and what it calls that. It knows no other
// signatures, and so needs none of ClamAV's.
const (
	Virus     = "This is what the virus scanner of Farol's tests has to find, and no virus."
	VirusName = "Farol.Test.UNOFFICIAL" // which is what clamd adds to names that are not ClamAV's
)

// Limits of the clamd of a stack, in bytes: of a stream that it takes, and of a
// file that it looks into. What lies between them it reports.
const (
	ClamdStreamMax = 2 << 20
	ClamdFileMax   = 1 << 20
)

// startClamd runs ClamAV's daemon with one signature.
func (s *Stack) startClamd(ctx context.Context) error {
	path, err := find("clamd", "clamav-daemon", "clamav")
	if err != nil {
		return err
	}
	run := func(ctx context.Context, addrs []string) (*child, error) { return s.runClamd(ctx, path, addrs[0]) }
	addrs, _, err := s.serve(ctx, run, "clamd")
	if err != nil {
		return err
	}
	s.ClamdAddr = addrs[0]
	return nil
}

func (s *Stack) runClamd(ctx context.Context, path, addr string) (*child, error) {
	host, port, _ := strings.Cut(addr, ":") // as address makes it
	home := filepath.Join(s.dir, "clamd")
	signatures, temporary, config := filepath.Join(home, "db"), filepath.Join(home, "tmp"), filepath.Join(home, "clamd.conf")
	err := errors.Join(
		os.MkdirAll(signatures, 0o700), os.MkdirAll(temporary, 0o700),
		os.WriteFile(filepath.Join(signatures, "farol.ndb"), []byte("Farol.Test:0:*:"+hex.EncodeToString([]byte(Virus))+"\n"), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, `Foreground yes
DatabaseDirectory %s
TemporaryDirectory %s
TCPAddr %s
TCPSocket %s
StreamMaxLength %d
MaxFileSize %d
AlertExceedsMax yes
`, signatures, temporary, host, port, ClamdStreamMax, ClamdFileMax), 0o600))
	if err != nil {
		return nil, fmt.Errorf("write clamd's settings: %w", err)
	}
	return s.guard(ctx, Clamd, guarded{
		Path: path, Args: []string{"--config-file=" + config}, Dir: home, UID: -1, GID: -1, Stop: syscall.SIGTERM, GraceMS: 5_000,
	}, func() bool { return listens(ctx, addr) })
}

// startPgBouncer runs PgBouncer in transaction mode. It has so few connections
// that its clients share them, statement by statement: a client that leaves something behind
// in a session is found out.
func (s *Stack) startPgBouncer(ctx context.Context) error {
	path, err := find("pgbouncer", "pgbouncer", "pgbouncer")
	if err != nil {
		return err
	}
	of, err := url.Parse(s.options.PoolerOf)
	if err != nil {
		return fmt.Errorf("read the server's URL: %w", err)
	}
	run := func(ctx context.Context, addrs []string) (*child, error) {
		return s.runPgBouncer(ctx, path, addrs[0], of)
	}
	addrs, _, err := s.serve(ctx, run, "pgbouncer")
	if err != nil {
		return err
	}
	of.Host = addrs[0]
	s.PoolerURL = of.String()
	return nil
}

func (s *Stack) runPgBouncer(ctx context.Context, path, addr string, server *url.URL) (*child, error) {
	host, port, _ := strings.Cut(addr, ":") // as address makes it
	home := cluster{path: filepath.Join(s.dir, "pgbouncer"), uid: -1, gid: -1}
	if os.Geteuid() == 0 { // it refuses to run as root, as PostgreSQL does
		var err error
		if home.uid, home.gid, err = ordinaryUser(); err != nil {
			return nil, err
		}
	}
	password, _ := server.User.Password()
	users := filepath.Join(home.path, "users")
	config := filepath.Join(home.path, "pgbouncer.ini")
	err := errors.Join(
		os.MkdirAll(home.path, 0o700), home.own(home.path),
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", server.User.Username(), password), 0o600), home.own(users),
		os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = 2
max_client_conn = 500
max_prepared_statements = 100
%s
`, server.Hostname(), server.Port(), host, port, users, strings.Join(s.options.PoolerSettings, "\n")), 0o600), home.own(config))
	if err != nil {
		return nil, fmt.Errorf("write PgBouncer's settings: %w", err)
	}
	return s.guard(ctx, PgBouncer, guarded{
		Path: path, Args: []string{"-q", config}, Dir: home.path, UID: home.uid, GID: home.gid,
		Stop: syscall.SIGTERM, GraceMS: 5_000,
	}, func() bool { return listens(ctx, addr) })
}
