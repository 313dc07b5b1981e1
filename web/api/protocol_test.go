package api_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// state is what is stored, but for what requests that are refused leave: sessions, keys,
// attempts to sign in, and the refusals that are on record.
func (s *site) state() string {
	s.t.Helper()
	return ask[string](s, `SELECT string_agg(table_name || ' ' || md5(query_to_xml(format('SELECT t FROM %I t %s ORDER BY t::text', table_name,
			CASE table_name WHEN 'actions' THEN 'WHERE outcome = ''done''' ELSE '' END), true, false, '')::text), E'\n' ORDER BY table_name)
		FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
			AND table_name NOT IN ('sessions', 'idempotency_keys', 'sign_in_failures', 'links', 'users', 'mail_outbox', 'alerts', 'tokens', 'registry_origin')`)
}

// refused fails the test unless an answer is a problem with a status and a code.
func (c *crawled) refused(what string, o ops.Row, a answer, status int, code string) {
	c.t.Helper()
	if a.status != status || a.code() != code || a.header.Get("Content-Type") != "application/problem+json" || ofTheProgram.MatchString(a.text("detail")) {
		c.t.Errorf("%s: %s: %d %s %s, want %d %s", o.ID, what, a.status, a.header.Get("Content-Type"), a.body, status, code)
	}
}

// Each operation takes its method and no other, and refuses what is not for it in the words
// of the API, before anything is done.
func TestRequestsThatAreNotForTheOperation(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	before := c.state()
	templates := c.templates()
	for _, o := range c.table.Rows() {
		path, body := c.request(o, templates[o.ID].values)
		who := c.people[cmp.Or(templates[o.ID].who, "U")]
		at, _, _ := strings.Cut(path, "?")
		for _, method := range []string{"OPTIONS", "TRACE", "BREW", "get", "PROPFIND"} {
			a := who.do(method, at, nil)
			c.refused(method, o, a, 405, "bad-request")
			if !slices.Contains(strings.Split(a.header.Get("Allow"), ", "), o.Method) {
				t.Errorf("%s: %s: Allow is %q", o.ID, method, a.header.Get("Allow"))
			}
		}
		if o.Method == http.MethodGet {
			c.heads(o, who, path)
		}
		c.refused("an unknown parameter", o, who.do(o.Method, at+"?no_such_parameter=1", orNil(body), c.key(o)...), 400, "unknown-parameter")
		for _, header := range []string{"Authorization", "If-Match", "Idempotency-Key"} {
			who.header[header] = []string{"a", "b"}
			c.refused(header+" twice", o, who.do(o.Method, path, orNil(body)), 400, "bad-request")
			delete(who.header, header)
		}
		if o.Method == http.MethodGet {
			continue
		}
		for _, kind := range []string{"text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "json", "", "*/*"} {
			c.refused("Content-Type "+kind, o, who.do(o.Method, path, cmp.Or(body, "{}"), append(c.key(o), "Content-Type", kind)...), 415, "bad-request")
		}
	}
	if after := c.state(); after != before {
		t.Errorf("something was done: before\n%s\nafter\n%s", before, after)
	}
	if c.unmodified < 100 {
		t.Errorf("%d answers were the same as before", c.unmodified)
	}
}

func orNil(body string) any {
	if body == "" {
		return nil
	}
	return body
}

// key is the header that an operation demands.
func (c *crawled) key(o ops.Row) []string {
	if !o.Once {
		return nil
	}
	c.sent++
	return []string{"Idempotency-Key", fmt.Sprint("key ", c.sent)}
}

// heads has HEAD answer what GET does, without a body, and GET an answer without a body to a
// caller who has it. An age in an answer may change it between two of them.
func (c *crawled) heads(o ops.Row, who *caller, path string) {
	c.t.Helper()
	read, head := who.do("GET", path, nil), who.do("HEAD", path, nil)
	tag := read.header.Get("ETag")
	if head.status != read.status || head.body != "" || head.header.Get("Content-Type") != read.header.Get("Content-Type") || (head.header.Get("ETag") == "") != (tag == "") {
		c.t.Errorf("%s: HEAD: %d %v %q; GET: %d %v", o.ID, head.status, head.header, head.body, read.status, read.header)
	}
	if tag == "" { // of content, or of a refusal
		return
	}
	for sent, has := range map[string]bool{tag: true, `"other", W/` + tag: true, "*": true, `"other"`: false, strings.Trim(tag, `"`): false} {
		a := who.do("GET", path, nil, "If-None-Match", sent)
		now, had := a.header.Get("ETag"), a.status == http.StatusNotModified
		if now == tag || sent == "*" {
			c.unmodified++
		} else {
			has = false
		}
		if had != has || had == (a.body != "") || a.status != http.StatusOK && !had {
			c.t.Errorf("%s: with If-None-Match %s: %d %v %q, want the same: %t", o.ID, sent, a.status, a.header, a.body, has)
		}
	}
}

// badBodies are bodies that no operation takes, made of one that it does.
func badBodies(body string, most int64) map[string]string {
	depth := int(min(most/8, 10_000))
	deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	list := map[string]string{
		"deep": deep, "deeper": strings.Repeat(`{"a":`, depth), "deep in it": `{"x": ` + deep + `}`, "an array": `[` + body + `]`, "a text": `"x"`, "a number": `7`, "true": `true`,
		"half": body[:len(body)/2], "two": body + body, "no UTF-8": "{\"\xff\": 1}", "UTF-16": "\xfe\xff\x00{\x00}", "another property": `{"no_such_property": 1}`, "a NUL": "{\x00}", "a comment": "{} // x",
	}
	var values map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &values) == nil {
		for name, value := range values {
			list["twice "+name] = fmt.Sprintf(`%s, %q: %s}`, strings.TrimSuffix(body, "}"), name, value)
			break
		}
	}
	list["too large"] = `{"x": "` + strings.Repeat("x", int(most)) + `"}`
	return list
}

// numbers are values that a property that is a whole number does not take.
func numbers(schema map[string]any) []string {
	list := []string{"1e400", "-1e400", "99999999999999999999", "1.5", `"7"`, "[7]", "{}", "true", "9223372036854775808", "1e30"}
	for name, by := range map[string]int64{"minimum": -1, "maximum": 1} {
		if n, is := schema[name].(json.Number); is {
			if v, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
				list = append(list, strconv.FormatInt(v+by, 10))
			}
		}
	}
	return list
}

// Each body that is not as the document has it is refused, and nothing is done.
func TestBodiesThatAreWrong(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	before, requests := c.state(), 0
	templates := c.templates()
	for _, o := range c.table.Rows() {
		path, body := c.request(o, templates[o.ID].values)
		properties, values := c.bodyOf(o, body)
		who := c.people[templates[o.ID].who]
		if properties == nil {
			continue
		}
		send := func(what, text string, status int, code string) {
			c.refused(what, o, who.do(o.Method, path, text, c.key(o)...), status, code)
			requests++
		}
		for what, text := range badBodies(body, o.MostBody()) {
			if what == "too large" {
				send(what, text, 413, "too-large")
			} else {
				send(what, text, 400, "bad-request")
			}
		}
		for name, schema := range properties {
			if !hasType(schema, "integer") {
				continue
			}
			for _, n := range numbers(schema) {
				send(name+" "+n, with(values, name, n), 400, "bad-request")
			}
		}
	}
	if after := c.state(); after != before || requests < 400 {
		t.Errorf("something was done in %d requests: before\n%s\nafter\n%s", requests, before, after)
	}
}

// A body that ends before it should is a bad request, with a key and without.
func TestBodiesThatEndEarly(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	token := c.people["S"].program("items.decide").token
	for _, key := range []string{"", "Idempotency-Key: early\r\n"} {
		conn := must.Get(net.Dial("tcp", strings.TrimPrefix(c.url, "http://")))(t)
		conn.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // of a socket that was just opened
		fmt.Fprintf(conn, "POST /api/v1/items/%v/cancel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%sContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", c.names["parked"], token, key)
		answered, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answered.StatusCode != 400 || answered.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: %d %v", key, answered.StatusCode, answered.Header)
		}
		answered.Body.Close() //nolint:errcheck // nothing was written
		conn.Close()          //nolint:errcheck // as above
	}
}

// Each operation answers a caller who asks too often, and callers whose token is not valid.
func TestEveryOperationHasALimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(a *api.API) { a.Rate = 1 })
	known := s.browser()
	known.token = "farol_WRONG"
	c := s.browser()
	for _, o := range s.table.Rows() {
		path := strings.NewReplacer("{id}", "1").Replace(o.Path)
		if a := known.do(o.Method, path, nil); a.status != 401 || a.code() != "not-signed-in" {
			t.Errorf("%s: a wrong token: %d %s", o.ID, a.status, a.body)
		}
		var a answer
		for range 10 { // three are allowed at once, and one more after a second
			if a = c.do(o.Method, path, nil); a.status == 429 {
				break
			}
		}
		if a.status != 429 || a.code() != "rate-limited" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: too often: %d %s", o.ID, a.status, a.body)
		}
	}
}

// Without a database each operation asks to try again, and says nothing of why.
func TestEveryOperationWithoutADatabase(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	templates := c.templates()
	c.web.Close()
	for _, o := range c.table.Rows() {
		path, body := c.request(o, templates[o.ID].values)
		a := c.people[cmp.Or(templates[o.ID].who, "U")].do(o.Method, path, orNil(body), c.key(o)...)
		if a.status != 503 || a.code() != "try-later" || a.header.Get("Retry-After") == "" || strings.Contains(a.body, "closed") {
			t.Errorf("%s: %d %s", o.ID, a.status, a.body)
		}
	}
}

// Where the document has an Idempotency-Key, one of another request is refused, and so is a
// body that is too large; where it has If-Match, so is the version of another record.
func TestEveryOperationHoldsToItsKeyAndVersion(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	before, templates, tried := c.state(), c.templates(), 0
	for _, o := range c.table.Rows() {
		tmpl := templates[o.ID]
		path, body := c.request(o, tmpl.values)
		who := c.people[cmp.Or(tmpl.who, "U")]
		if theSpec.parameter(o, "Idempotency-Key") != nil {
			key := []string{"Idempotency-Key", "of " + o.ID}
			c.refused("the first request", o, who.do(o.Method, path+"&no_such_parameter=1", orNil(body), key...), 400, "unknown-parameter")
			c.refused("the key of another request", o, who.do(o.Method, path, orNil(body), key...), 422, "key-reused")
			c.refused("a long key", o, who.do(o.Method, path, orNil(body), "Idempotency-Key", strings.Repeat("k", 101)), 400, "bad-request")
			large := `{"x": "` + strings.Repeat("x", int(o.MostBody())) + `"}`
			c.refused("too large, with a key", o, who.do(o.Method, path, large, "Idempotency-Key", "large"), 413, "too-large")
			tried++
		} else if o.Method != http.MethodGet {
			c.refused("a key that is not taken", o, who.do(o.Method, path, orNil(body), "Idempotency-Key", "k"), 400, "bad-request")
		}
		if theSpec.parameter(o, "If-Match") != nil {
			c.refused("another version", o, who.do(o.Method, path, orNil(body), append(c.key(o), "If-Match", `"99999"`)...), 412, "changed")
			tried++
		}
	}
	if after := c.state(); after != before || tried < 40 {
		t.Errorf("something was done, or only %d tried: before\n%s\nafter\n%s", tried, before, after)
	}
}
