package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// behind runs a server with an S3 proxy before it, and returns a client that trusts
// the proxy.
func behind(t *testing.T, handler http.HandlerFunc) (*s3Proxy, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca, err := rig.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := newS3Proxy(devstack.Gateway{Endpoint: server.URL, CAFile: testenv.CAFile(t, server)}, ca)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	transport, err := devstack.Gateway{CAFile: ca.File}.Transport()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return p, &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func get(t *testing.T, client *http.Client, p *s3Proxy, path string, header ...string) (a answer) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Addr()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

const content10k = 10 << 10

func TestRulesDoWhatTheySay(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("a", content10k)
	for name, tt := range map[string]struct {
		rule *rule
		path string
		ok   func(answer) bool
	}{
		"none":    {&rule{}, "/b/key", func(a answer) bool { return a.status == 200 && a.body == whole }},
		"refusal": {refusal(403, "AccessDenied", "no"), "/b/key", func(a answer) bool { return a.status == 403 && strings.Contains(a.body, "<Code>AccessDenied</Code>") }},
		"portal":  {portal(), "/b/key", func(a answer) bool { return a.status == 200 && strings.Contains(a.body, "<html>") }},
		"flip": {flipByte(), "/b/key", func(a answer) bool {
			return a.err == nil && strings.Count(a.body, "`") == 1 && len(a.body) == content10k
		}},
		"cut": {cutBody(), "/b/key", func(a answer) bool { return a.err != nil && len(a.body) < content10k }},
		"short": {shortBody(), "/b/key", func(a answer) bool {
			return a.err == nil && len(a.body) < content10k && a.header.Get("Content-Length") == strconv.Itoa(len(a.body))
		}},
		"listing":  {emptyList(), "/b?list-type=2", func(a answer) bool { return a.status == 200 && strings.Contains(a.body, "<Health>") }},
		"no list":  {emptyList(), "/b/key", func(a answer) bool { return a.body == whole }},
		"in":       {portal().in("b"), "/b/key", func(a answer) bool { return strings.Contains(a.body, "<html>") }},
		"not in":   {portal().in("c"), "/b/key", func(a answer) bool { return a.body == whole }},
		"signed":   {badSignature(), "/b/key", func(a answer) bool { return a.header.Get("Saw-Authorization") == "Signature=1bc" }},
		"far date": {skewed(time.Hour, aws.Credentials{}, "r"), "/b/key", func(a answer) bool { return a.status == 403 && strings.Contains(a.body, "RequestTimeTooSkewed") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, client := behind(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Saw-Authorization", r.Header.Get("Authorization"))
				w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
				io.WriteString(w, whole) //nolint:errcheck // the client has gone
			})
			p.add(tt.rule)
			a := get(t, client, p, tt.path, "Authorization", "Signature=0bc", "X-Amz-Date", time.Now().UTC().Format("20060102T150405Z"))
			if !tt.ok(a) {
				t.Errorf("answer %d, %d bytes, %v, %v: %.80s", a.status, len(a.body), a.err, a.header, a.body)
			}
			p.remove(tt.rule)
			if a := get(t, client, p, tt.path); a.err != nil || a.body != whole {
				t.Errorf("afterwards: %d, %v", a.status, a.err)
			}
		})
	}
}

// A client that has set its clock by S3's must get through, with a signature that
// is right by the gateway's clock.
func TestSkewedClientsThatFollowArePassedOn(t *testing.T) {
	t.Parallel()
	p, client := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Saw-Date", r.Header.Get("X-Amz-Date"))
		w.Header().Set("Saw-Authorization", r.Header.Get("Authorization"))
	})
	p.add(skewed(time.Hour, aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, "region"))
	a := get(t, client, p, "/b/key", "Authorization", "AWS4-HMAC-SHA256 old",
		"X-Amz-Date", time.Now().Add(time.Hour).UTC().Format("20060102T150405Z"), "X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	saw, err := time.Parse("20060102T150405Z", a.header.Get("Saw-Date"))
	if err != nil || time.Since(saw).Abs() > time.Minute || !strings.Contains(a.header.Get("Saw-Authorization"), "Credential=key/") {
		t.Errorf("the gateway saw %q, %q (%v)", a.header.Get("Saw-Date"), a.header.Get("Saw-Authorization"), err)
	}
	date, err := http.ParseTime(a.header.Get("Date"))
	if err != nil || time.Until(date) < 50*time.Minute {
		t.Errorf("the client saw the date %v, %v", date, err)
	}
}

func TestFirstOnlyMeetsEachPathOnce(t *testing.T) {
	t.Parallel()
	p, client := behind(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }) //nolint:errcheck // the client has gone
	r := refusal(503, "SlowDown", "").firstOnly()
	p.add(r)
	for _, path := range []string{"/b/1", "/b/2"} {
		for i, want := range []int{503, 200, 200} {
			if a := get(t, client, p, path); a.status != want {
				t.Errorf("answer %d to %s is %d, want %d", i, path, a.status, want)
			}
		}
	}
	if n := r.hits.Load(); n != 2 {
		t.Errorf("%d hits", n)
	}
}

// The same seed makes the same bags, and the oracle finds in each what was put in.
func TestBagsAreAsTheSeedSays(t *testing.T) {
	t.Parallel()
	make := func(seed uint64) (text string) {
		bags, err := makeBags(t.TempDir(), seed, mix{Bags: 60, Many: 1}, []rig.Institution{{Identifier: "test.edu", Receiving: "in"}})
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for _, b := range bags {
			for _, f := range b.Files {
				text += f.Digests["sha256"]
			}
			if b.Wrong != "" {
				wrong++
			}
		}
		if wrong != 6 {
			t.Errorf("%d bags of 60 are invalid", wrong)
		}
		return text
	}
	if make(1) != make(1) || make(1) == make(2) {
		t.Error("the seed does not choose the bags")
	}
}

// Every experiment has a name of its own, and make chaos stays short.
func TestExperimentsHaveNames(t *testing.T) {
	t.Parallel()
	seen, short := map[string]bool{}, 0
	for _, e := range experiments() {
		if seen[e.name] || e.name == "" || e.does == "" || e.must == "" {
			t.Errorf("experiment %+v", e.name)
		}
		seen[e.name] = true
		if e.short {
			short++
		}
	}
	if short < 10 || short > 20 {
		t.Errorf("%d short experiments", short)
	}
}
