package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nsqio/go-nsq"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
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
	client := storage.NewClient(storage.Options{Stall: 200 * time.Millisecond, Patience: 1})
	t.Cleanup(client.Close)
	b := must.Get(client.Bucket(storage.Target{
		Name: "test", Bucket: "staging", Endpoint: server.URL, Region: "us-east-1", PathStyle: true, AccessKeyID: "a", SecretAccessKey: "b",
	}))(t)
	r, err := b.Get(t.Context(), "key", storage.Range{Length: -1})
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	return cause.Storage(err)
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
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
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
	w := &pipeline.Work{Item: claim.Item{ID: 1, Token: 1}}
	return w.ProgressErr(progress.New(client, "t").Done(t.Context(), progress.Claim{Item: 1, Token: 1}, "Store", map[int]string{1: "a"}))
}

// What is a service's failure names the service, also deep within other errors. What
// trying again cannot repair does not take attempts, and what nobody knows is tried again.
func TestWhatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := &work{Work: &pipeline.Work{Item: claim.Item{ID: 1, Bucket: "receiving"}}}
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"the bag is gone":         {w.receivingErr(fmt.Errorf("read: %w", storage.ErrNotFound)), "bag-gone"},
		"the bag was replaced":    {w.receivingErr(fmt.Errorf("read: %w", storage.ErrChanged)), "bag-changed"},
		"Redis has a newer claim": {w.ProgressErr(fmt.Errorf("write: %w", progress.ErrLost)), "lost"},
		"the claim is lost":       {registry.ErrLost, "lost"},
		"a bad bag":               {claim.Fatal("invalid-bag", "it is not valid"), "invalid-bag"},
	} {
		for _, err := range wrapped(tc.err) {
			if claim.IsTransient(err) || claim.FaultIn(err) != nil || claim.Code(err) != tc.code {
				t.Errorf("%s: %v is tried again, or has the code %q and not %q", name, err, claim.Code(err), tc.code)
			}
		}
	}
	for _, err := range []error{nsq.ErrNotConnected, nsq.ErrProtocol{Reason: "E_PUB_FAILED PUB failed"}, errors.New("odd")} {
		if claim.FaultIn(err) != nil || !claim.IsTransient(err) {
			t.Errorf("%v is not tried again, or a fault", err)
		}
	}
}

func TestFaultsNameTheirService(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	away := must.Get(dial.Connect(t.Context(), "postgres://farol@127.0.0.1:1/none", "test"))(t)
	t.Cleanup(away.Close)
	_, noDir := os.CreateTemp(t.TempDir()+"/none", "farol-*")
	full := must.Get(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	_, noRoom := full.Write([]byte("a"))
	full.Close()
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	const half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"e\"\r\n\r\nhalf"
	is := func(err error) func() error { return func() error { return err } }
	s3 := func(serve http.HandlerFunc) func() error { return func() error { return fromS3(t, serve) } }
	redisSays := func(says string) func() error { return func() error { return fromRedis(t, says) } }
	type row struct {
		fails         func() error
		service, code string
	}
	rows := map[string]row{
		"a full disk":          {is(cause.Host(noRoom)), "disk", "disk-full"},
		"no TMPDIR":            {is(cause.Host(noDir)), "disk", "disk-missing"},
		"no target":            {is(cause.NoTarget("A")), "settings", "settings-missing"},
		"PostgreSQL: away":     {is(registry.New(away).Ping(t.Context())), "database", "database-unavailable"},
		"Redis: hangs up":      {redisSays(""), "redis", "progress-unavailable"},
		"Redis: starts":        {redisSays("-LOADING Redis is loading the dataset in memory"), "redis", "progress-unavailable"},
		"Redis: a replica":     {redisSays("-READONLY You can't write against a read only replica."), "redis", "progress-read-only"},
		"Redis: full":          {redisSays("-OOM command not allowed when used memory > 'maxmemory'."), "redis", "progress-full"},
		"Redis: cluster away":  {redisSays("-CLUSTERDOWN The cluster is down"), "redis", "progress-unavailable"},
		"Redis: busy":          {redisSays("-BUSY Redis is busy running a script."), "redis", "progress-overloaded"},
		"Redis: asks who I am": {redisSays("-NOAUTH Authentication required."), "redis", "progress-denied"},
	}
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		kind  string
	}{
		"403": {answers(403, "AccessDenied"), "denied"}, "no bucket": {answers(404, "NoSuchBucket"), "missing"},
		"500": {answers(500, "InternalError"), "unavailable"}, "502": {answers(502, ""), "unavailable"}, "503": {answers(503, ""), "overloaded"},
		"slow down": {answers(503, "SlowDown"), "overloaded"}, "429": {answers(429, "TooManyRequests"), "overloaded"},
		"too old": {answers(400, "RequestTimeout"), "unavailable"}, "a wrong clock": {answers(403, "RequestTimeTooSkewed"), "skewed"},
		"silent": {silent, "unavailable"}, "cut": {hangsUp(half, false), "unavailable"}, "reset": {hangsUp(half, true), "unavailable"},
		"reset at once": {hangsUp("", true), "unavailable"},
	} {
		rows["S3: "+name] = row{s3(tc.serve), "s3:test", "storage-" + tc.kind}
	}
	for code, kind := range map[string]string{
		"25006": "read-only", "57P01": "unavailable", "57P02": "unavailable", "57P03": "unavailable", "40001": "overloaded", "40P01": "overloaded",
		"53300": "overloaded", "53100": "full", "53200": "overloaded", "55P03": "overloaded", "57014": "overloaded", "42P01": "wrong-answer",
		"08006": "unavailable", "08003": "unavailable", "08P01": "unavailable", "58030": "unavailable", "XX000": "unavailable",
	} {
		rows["PostgreSQL: "+code] = row{func() error { return fromPostgres(t, db, code) }, "database", "database-" + kind}
	}
	for name, tc := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range wrapped(tc.fails()) {
				if f := claim.FaultIn(err); f == nil || f.Service != tc.service || claim.Code(err) != tc.code {
					t.Errorf("%v is %+v with the code %q, want the fault %s of %s", err, f, claim.Code(err), tc.code, tc.service)
				}
			}
		})
	}
}

// wrapped are errors in which err is found.
func wrapped(err error) []error {
	return []error{err, fmt.Errorf("file a: %w", fmt.Errorf("write: %w", err)), errors.Join(errors.New("another"), err)}
}
