package nsqcompat

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// nsqlookupd knows where nsqd is, also when it is back.
func TestNSQDIsFoundByLookup(t *testing.T) {
	t.Parallel()
	q := &queue{t: t, db: testenv.Database(t), nsqd: testenv.NewNSQLookup(t)}
	testenv.Exec(t, q.db, `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	start(t, q.db, MirrorOptions{LookupdAddr: q.nsqd.LookupAddr})
	q.items(4)
	q.claim("Receive", 1)
	q.shows(receiveTopic, 3, 1, 0)
	q.nsqd.Stop(t)
	q.items(1)
	q.nsqd.Start(t)
	q.shows(receiveTopic, 4, 1, 0)
}

// Of several nsqd all mirrors take the same. An invalid answer is reported.
func TestLookupTakesTheFirst(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]daemon{
		`{"producers":[{"broadcast_address":"b","tcp_port":1,"http_port":2},{"broadcast_address":"a","tcp_port":40,"http_port":4},
			{"broadcast_address":"a","tcp_port":9,"http_port":5}]}`: {"a:9", "a:5"},
		`{"producers":[{"broadcast_address":"::1","tcp_port":1,"http_port":2}]}`: {"[::1]:1", "[::1]:2"},
		`{"producers":[]}`: {},
		`<html>`:           {},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/nodes" {
				w.Write([]byte(answer))
			}
		}))
		defer server.Close()
		got, err := lookup(t.Context(), strings.TrimPrefix(server.URL, "http://"))
		if got != want || (err == nil) != (want != daemon{}) {
			t.Errorf("lookup of %s = %v, %v; want %v", answer, got, err, want)
		}
	}
}
