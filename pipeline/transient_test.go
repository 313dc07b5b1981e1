package pipeline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nsqio/go-nsq"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// fromPostgres is what a server answers with a code, or a lost connection to it.
func fromPostgres(t *testing.T, db *pgxpool.Pool, code string) error {
	t.Helper()
	_, err := db.Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = '%s'; END $$`, code))
	return err
}

// fromS3 is what the bucket of a server that behaves so comes to.
func fromS3(t *testing.T, serve http.HandlerFunc) error {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	client := storage.NewClient(storage.Options{Stall: 200 * time.Millisecond})
	t.Cleanup(client.Close)
	b, err := client.Bucket(storage.Target{
		Name: "test", Bucket: "staging", Endpoint: server.URL, Region: "us-east-1", PathStyle: true, AccessKeyID: "a", SecretAccessKey: "b",
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Get(t.Context(), "key", storage.Range{Length: -1})
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	return storageErr(err)
}

func answers(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		if code != "" {
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code></Error>`, code)
		}
	}
}

// hangsUp ends the connection in the middle of what it says.
func hangsUp(said string, reset bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, said)
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// fromRedis is what a write comes to, if the server gives each command this
// answer; "" is to hang up.
func fromRedis(t *testing.T, says string) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); says != "" && lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "*") {
						io.WriteString(conn, says+"\r\n")
					}
				}
			}()
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, Protocol: 2, DisableIdentity: true, ReadTimeout: time.Second})
	t.Cleanup(func() { client.Close() })
	w := &work{item: claim.Item{ID: 1, Token: 1}}
	return w.progressErr(progress.New(client, "t").Done(t.Context(), progress.Claim{Item: 1, Token: 1}, "Store", map[int]string{1: "a"}))
}

// A server that is away, busy or on the way to another place costs an attempt and
// no person's time; what trying again cannot mend does not take attempts.
func TestWhatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	nobody := func() error { _, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:1"); return err }
	away, err := registry.Connect(t.Context(), "postgres://farol@127.0.0.1:1/none", "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(away.Close)
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	const half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"e\"\r\n\r\nhalf"
	w := &work{item: claim.Item{ID: 1}}
	final := map[string]struct {
		err  error
		code string
	}{
		"S3: denied":               {fromS3(t, answers(403, "AccessDenied")), "storage-denied"},
		"S3: no such bucket":       {fromS3(t, answers(404, "NoSuchBucket")), "storage-denied"},
		"S3: the bag is gone":      {w.receivingErr(fmt.Errorf("read: %w", storage.ErrNotFound)), "bag-gone"},
		"S3: the bag was replaced": {w.receivingErr(fmt.Errorf("read: %w", storage.ErrChanged)), "bag-changed"},
		"Redis: a newer claim":     {w.progressErr(fmt.Errorf("write: %w", progress.ErrLost)), "lost"},
		"the claim is lost":        {registry.ErrLost, "lost"},
		"a bad bag":                {claim.Fatal("invalid-bag", "it is not valid"), "invalid-bag"},
	}
	for name, tc := range final {
		for _, err := range []error{tc.err, fmt.Errorf("file a: %w", tc.err), errors.Join(errors.New("another"), tc.err)} {
			if claim.IsTransient(err) || claim.Code(err) != tc.code {
				t.Errorf("%s: %v is tried again, or has the code %q and not %q", name, err, claim.Code(err), tc.code)
			}
		}
	}
	is := func(err error) func() error { return func() error { return err } }
	s3 := func(serve http.HandlerFunc) func() error { return func() error { return fromS3(t, serve) } }
	redisSays := func(says string) func() error { return func() error { return fromRedis(t, says) } }
	transient := map[string]func() error{
		"a refused connection":           is(nobody()),
		"a lost connection":              is(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}),
		"a broken pipe":                  is(&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}),
		"no route":                       is(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}),
		"no answer":                      is(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}),
		"no name":                        is(&net.DNSError{Err: "server misbehaving", Name: "s3.example.org", IsTemporary: true}),
		"a deadline":                     is(context.DeadlineExceeded),
		"a deadline of a connection":     is(os.ErrDeadlineExceeded),
		"the end in the middle":          is(io.ErrUnexpectedEOF),
		"a full disk":                    is(&os.PathError{Op: "write", Path: "/tmp/list", Err: syscall.ENOSPC}),
		"PostgreSQL: not there":          is(registry.New(away).Ping(t.Context())),
		"S3: 500":                        s3(answers(500, "InternalError")),
		"S3: 502":                        s3(answers(502, "")),
		"S3: 503":                        s3(answers(503, "")),
		"S3: 503 slow down":              s3(answers(503, "SlowDown")),
		"S3: 504":                        s3(answers(504, "")),
		"S3: 429":                        s3(answers(429, "TooManyRequests")),
		"S3: 400 the request is too old": s3(answers(400, "RequestTimeout")),
		"S3: 403 a clock is wrong":       s3(answers(403, "RequestTimeTooSkewed")),
		"S3: no response":                s3(silent),
		"S3: the end in the middle":      s3(hangsUp(half, false)),
		"S3: reset in the middle":        s3(hangsUp(half, true)),
		"S3: reset at once":              s3(hangsUp("", true)),
		"S3: no HTTP":                    s3(hangsUp("SSH-2.0-OpenSSH\r\n", false)),
		"Redis: hangs up":                redisSays(""),
		"Redis: starts":                  redisSays("-LOADING Redis is loading the dataset in memory"),
		"Redis: a replica":               redisSays("-READONLY You can't write against a read only replica."),
		"Redis: full":                    redisSays("-OOM command not allowed when used memory > 'maxmemory'."),
		"Redis: master away":             redisSays("-MASTERDOWN Link with MASTER is down"),
		"Redis: cluster away":            redisSays("-CLUSTERDOWN The cluster is down"),
		"Redis: busy":                    redisSays("-BUSY Redis is busy running a script."),
		"Redis: many clients":            is(redis.ErrPoolTimeout),
		"NSQ: not connected":             is(nsq.ErrNotConnected),
		"NSQ: closed":                    is(nsq.ErrStopped),
		"NSQ: no such topic now":         is(nsq.ErrProtocol{Reason: "E_PUB_FAILED PUB failed"}),
	}
	for code, what := range map[string]string{
		"25006": "a standby by now", "57P01": "shuts down", "57P02": "has crashed", "57P03": "starts", "40001": "no order", "40P01": "a deadlock",
		"53300": "too many connections", "53100": "disk full", "53200": "out of memory", "55P03": "locked", "57014": "a statement's deadline",
		"08006": "lost", "08003": "closed", "08P01": "a pooler's protocol", "58030": "I/O error", "XX000": "internal",
	} {
		transient["PostgreSQL: "+code+", "+what] = func() error { return fromPostgres(t, db, code) }
	}
	for name, fails := range transient {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fails()
			if err == nil {
				t.Fatal("no error")
			}
			for _, err := range []error{err, fmt.Errorf("file a: %w", fmt.Errorf("write: %w", err)), errors.Join(errors.New("another"), err)} {
				code := claim.Code(err)
				if !claim.IsTransient(err) || claim.NeedsPerson(err) || !slices.Contains([]string{"transient", "timeout", "storage-unavailable", "progress-unavailable"}, code) ||
					strings.HasPrefix(name, "S3: ") != (code == "storage-unavailable") {
					t.Errorf("%v is not tried again, with the code %q", err, claim.Code(err))
				}
			}
		})
	}
}
