package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
)

// hostileTexts are values that something between a browser and the database may take for
// more than a value.
func hostileTexts() []string {
	return []string{
		"'", `"`, "\x00", "%", "%00", "_", `\`, "'; DROP TABLE work_items; --", "$1", "@institution", "{}", "a\nb\r\nX-Header: c",
		"\xff\xfe", "\xed\xa0\x80", "\u202egpj.exe", "\U0010FFFF", "<script>alert(1)</script>", strings.Repeat("x", 3000), "-1", "1e400", "NaN", "",
	}
}

// ofTheProgram is what an answer has no business to show.
var ofTheProgram = regexp.MustCompile(`SQLSTATE|pgx|pgconn|goroutine |runtime error|json: |jsontext|strconv\.|parsing time|2006-01-02|Go (value|struct)|interface \{\}|\.go:\d|\bint64\b|map\[|%!`)

// templates are the requests of crawl, and some more, that have a body, by operation.
func (c *crawled) templates() map[string]template {
	list := map[string]template{}
	more := `
* session.begin {"email": "u@archive.org", "password": "x"}
U session.proof {"proof": "x"}
S session.factor {"code": "x"}
* session.forgot {"email": "nobody@archive.org"}
* link.show {"secret": "x"}
* link.use {"secret": "x", "password": "x"}
* link.sign_in {"secret": "x"}
U me.set_factor {"pending": "x", "code": "x"}
U me.set_password {"old": "x", "new": "x"}
`
	for line := range strings.Lines(c.lines() + more) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " > ")
		words := strings.Fields(line)
		if len(words) > 1 {
			list[words[1]] = template{words[0], words[2:]}
		}
	}
	return list
}

type template struct {
	who    string
	values []string
}

// named gives the names of records that crawl makes on the way those of records that are
// there.
func (c *crawled) named() {
	c.names["token"], c.names["service"] = 1, 1
	c.names["user"] = c.person("bystander@test.edu", registry.RoleInstitutionalUser, "test.edu").person.ID
	c.people["S"].makes(`{"action": "set priority", "priority": 3, "filter": {"error_code": "timeout"}}`)
	for name, table := range map[string]string{"institution": "institutions", "plan": "plans", "restoration": "work_items", "deletion": "deletion_requests"} {
		c.names[name] = ask[int64](c.site, `SELECT coalesce(max(id), 1) FROM `+table)
	}
}

// hostile sends a request, and fails the test if its answer is one of a server that is not
// up to it.
func (c *crawled) hostile(o ops.Row, who, path, body string) {
	c.t.Helper()
	c.sent++
	var headers []string
	if o.Once {
		headers = []string{"Idempotency-Key", fmt.Sprint("hostile ", c.sent)}
	}
	var sent any
	if body != "" {
		sent = body
	}
	a := c.people[who].do(o.Method, path, sent, headers...)
	text := a.text("detail")
	if a.status >= 500 || a.status >= 400 && ofTheProgram.MatchString(text) && !strings.Contains(body+path, ofTheProgram.FindString(text)) {
		c.t.Errorf("%s: %s %.300q %.300q: %d %s", o.ID, o.Method, path, body, a.status, a.body)
	}
}

// Whatever text a parameter has, it is a value: nothing fails, nothing of the program or the
// database shows, and the tables stay.
func TestParametersAreValues(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	const tables = `SELECT string_agg(table_name, ' ' ORDER BY table_name) FROM information_schema.tables WHERE table_schema = 'public'`
	before := ask[string](c.site, tables)
	templates, requests := c.templates(), 0
	for _, o := range c.table.Rows() {
		tmpl := templates[o.ID]
		if tmpl.who == "" || o.ID == "session.end" {
			continue
		}
		path, _ := c.request(o, tmpl.values)
		parameters, _ := theSpec.at("paths", o.Path, strings.ToLower(o.Method))["parameters"].([]any)
		for _, p := range parameters {
			p, _ := p.(map[string]any)
			name, _ := p["name"].(string)
			for _, text := range hostileTexts() {
				at, body := path, ""
				switch p["in"] {
				case "query":
					at += "&" + name + "=" + url.QueryEscape(text)
				case "path":
					_, body = c.request(o, tmpl.values)
					values := slices.DeleteFunc(slices.Clone(tmpl.values), func(v string) bool { return strings.HasPrefix(v, name+"=") })
					at, _ = c.request(o, append([]string{name + "=" + url.PathEscape(text)}, values...))
					if text == "" {
						continue // which is another path
					}
				default:
					continue
				}
				c.hostile(o, tmpl.who, at, body)
				requests++
			}
		}
	}
	if after := ask[string](c.site, tables); after != before || requests < 3000 {
		t.Errorf("%d requests; tables before: %s; after: %s", requests, before, after)
	}
	t.Logf("%d requests", requests)
}

// variants are the values that a property of a body is tried with.
func variants(schema map[string]any) (list []string) {
	for _, text := range hostileTexts() {
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\x00", `\u0000`).Replace(text) + `"`
		list = append(list, quoted)
		if hasType(schema, "array") {
			list = append(list, "["+quoted+"]")
		}
	}
	return append(list, `"\ud800"`)
}

func hasType(schema map[string]any, name string) bool {
	several, _ := schema["type"].([]any)
	return schema["type"] == name || slices.Contains(several, any(name))
}

// bodyOf are the properties of the body of an operation, by a path such as "filter.name",
// and the body of a template by the same names.
func (c *crawled) bodyOf(o ops.Row, body string) (properties map[string]map[string]any, values map[string]json.RawMessage) {
	c.t.Helper()
	properties, values = map[string]map[string]any{}, map[string]json.RawMessage{}
	media := theSpec.at("paths", o.Path, strings.ToLower(o.Method), "requestBody", "content", "application/json", "schema")
	if media == nil || body == "" {
		return nil, nil
	}
	resolved := func(schema map[string]any) map[string]any {
		if ref, is := schema["$ref"].(string); is {
			return theSpec.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
		return schema
	}
	if err := json.Unmarshal([]byte(body), &values); err != nil {
		c.t.Fatalf("%s: %v", body, err)
	}
	all, _ := resolved(media)["properties"].(map[string]any)
	for name, p := range all {
		p, _ := p.(map[string]any)
		properties[name] = resolved(p)
	}
	return properties, values
}

// with is an object as JSON in which a property has a value, which may be no JSON.
func with(values map[string]json.RawMessage, name, raw string) string {
	parts := []string{fmt.Sprintf("%q: %s", name, raw)}
	for k, v := range values {
		if k != name {
			parts = append(parts, fmt.Sprintf("%q: %s", k, v))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Whatever text a property of a body has, it is a value, too.
func TestBodiesAreValues(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	c.named()
	requests := 0
	for _, o := range c.table.Rows() {
		tmpl := c.templates()[o.ID]
		if tmpl.who == "" {
			continue
		}
		path, body := c.request(o, tmpl.values)
		properties, values := c.bodyOf(o, body)
		for name, schema := range properties {
			for _, v := range variants(schema) {
				c.hostile(o, tmpl.who, path, with(values, name, v))
				requests++
			}
			inner, _ := schema["properties"].(map[string]any)
			for field, p := range inner {
				p, _ := p.(map[string]any)
				for _, v := range variants(p) {
					c.hostile(o, tmpl.who, path, with(values, name, fmt.Sprintf("{%q: %s}", field, v)))
					requests++
				}
			}
		}
	}
	if n := ask[int](c.site, `SELECT count(*) FROM work_items`); n == 0 || requests < 1000 {
		t.Errorf("%d requests, %d items", requests, n)
	}
	if got := ask[string](c.site, `SELECT role FROM users WHERE email = 's@archive.org'`); got != registry.RoleAdmin {
		t.Errorf("the admin is %s", got)
	}
	t.Logf("%d requests", requests)
}
