package nsqcompat

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A connection that broke while there was nothing to send costs one failure
// and no message.
func TestLostConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	nsqd := testenv.NSQ(t)
	proxy := testenv.NewProxy(t, nsqd.TCPAddr)
	lost := subscribe(t, nsqd.TCPAddr, "lost")
	p := publisher{addr: proxy.Addr()}
	t.Cleanup(p.drop)
	want := testenv.Numbers(1, 10)
	failures := 0
	for _, body := range want {
		for p.send(t.Context(), "lost", [][]byte{[]byte(body)}) != nil {
			if failures++; failures == len(want) {
				t.Fatalf("%d failures, and %s is not sent", failures, body)
			}
		}
		proxy.Cut()
		proxy.Resume()
	}
	if failures != len(want)-1 {
		t.Errorf("%d failures, want one for each of the %d lost connections", failures, len(want)-1)
	}
	if n := proxy.Connections(); n != len(want) {
		t.Errorf("%d connections made, want %d", n, len(want))
	}
	if diff := cmp.Diff(want, append(lost.take(t, len(want)), lost.end(t, nsqd.TCPAddr)...)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// After a refusal, which ends nsqd's side, the next message gets through at once.
func TestRefusalIsDistinguishedFromALostConnection(t *testing.T) {
	t.Parallel()
	nsqd := testenv.NSQ(t)
	p := publisher{addr: nsqd.TCPAddr}
	t.Cleanup(p.drop)
	var answer nsq.ErrProtocol
	if err := p.send(t.Context(), "refused", [][]byte{{}}); !errors.As(err, &answer) || !isRefusal(err) {
		t.Errorf("send of an empty body = %v, want nsqd's refusal", err)
	}
	if err := p.send(t.Context(), "refused", [][]byte{[]byte("1")}); err != nil {
		t.Errorf("send after it = %v", err)
	}
}

// What listens at the address may be anything.
func TestOtherServersAreNotTakenForNSQD(t *testing.T) {
	t.Parallel()
	const ok = "\x00\x00\x00\x06\x00\x00\x00\x00OK"
	for name, c := range map[string]struct{ says, want string }{
		"web server":   {"HTTP/1.1 400 Bad Request\r\n\r\n", "this is not nsqd"},
		"huge frame":   {"\x00\x00\x10\x01\x00\x00\x00\x00", "4097 bytes; this is not nsqd"},
		"small frame":  {"\x00\x00\x00\x03\x00\x00\x00\x00", "3 bytes; this is not nsqd"},
		"cut frame":    {ok + "\x00\x00\x00\x06\x00\x00\x00\x00O", "unexpected EOF"},
		"other answer": {ok + "\x00\x00\x00\x06\x00\x00\x00\x00NO", `answered "NO"`},
		"a message":    {ok + "\x00\x00\x00\x06\x00\x00\x00\x02OK", `answered "OK"`},
		"silence":      {"", "EOF"},
		// That says nothing of the message, which must not be passed over for it.
		"greeting refused": {"\x00\x00\x00\x17\x00\x00\x00\x01E_BAD_BODY IDENTIFY", "E_BAD_BODY IDENTIFY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publisher{addr: speaker(t, c.says)}
			t.Cleanup(p.drop)
			err := p.send(t.Context(), "topic", [][]byte{[]byte("1")})
			if err == nil || isRefusal(err) || !strings.Contains(err.Error(), "publish to topic at "+p.addr) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("send = %v, want an error with topic, address and %q that is no refusal", err, c.want)
			}
			if p.conn != nil {
				t.Error("the connection is kept")
			}
		})
	}
}

// speaker is the address of a server that reads what it is sent and then says
// one thing, whatever it was.
func speaker(t *testing.T, says string) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // the test is over
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, says)           //nolint:errcheck // the client may be gone
			conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // likewise
			io.Copy(io.Discard, conn)        //nolint:errcheck // likewise
			conn.Close()                     //nolint:errcheck // likewise
		}
	}()
	return listener.Addr().String()
}
