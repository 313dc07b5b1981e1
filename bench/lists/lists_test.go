package lists

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// A cursor keeps the list that it belongs to, and gets the key in the form that it had.
func TestCursorGetsAnotherKey(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, tc := range map[string]struct {
		had  string
		is   place
		want string
	}{
		"number":     {`{"f":"of","k":9}`, place{id: 7}, `{"f":"of","k":7}`},
		"id":         {`{"f":"of","k":{"id":9}}`, place{id: 7}, `{"f":"of","k":{"id":7}}`},
		"time":       {`{"f":"of","k":{"id":9,"at":"2020-01-01T00:00:00Z"}}`, place{id: 7, at: &at}, `{"f":"of","k":{"at":"2026-01-02T03:04:05.000006Z","id":7}}`},
		"identifier": {`{"f":"of","k":{"identifier":"a"}}`, place{identifier: "b"}, `{"f":"of","k":{"identifier":"b"}}`},
	} {
		next := "/api/v1/items?after=" + base64.RawURLEncoding.EncodeToString([]byte(tc.had)) + "&status=Failed&status=Suspended"
		got, err := tc.is.of(next)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		text, err := base64.RawURLEncoding.DecodeString(u.Query().Get("after"))
		if err != nil || string(text) != tc.want {
			t.Errorf("%s: %s %v, want %s", name, text, err, tc.want)
		}
		if status := u.Query()["status"]; !slices.Equal(status, []string{"Failed", "Suspended"}) {
			t.Errorf("%s: the filters became %v", name, status)
		}
	}
}

func TestURLOfAList(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]list{
		"/items":             {path: "/items"},
		"/items?review=true": {path: "/items", query: "review=true"},
		"/items?name=a+%26b": {path: "/items", query: "name=%s"},
		"/items?a &b":        {path: "/items", query: "%s"},
		"/items?x=1&y=a+%26b": {
			path: "/items", query: "x=1&y=%s",
		},
	} {
		if got := l.url("a &b"); got != want {
			t.Errorf("%q: %s, want %s", l.query, got, want)
		}
	}
}

// Each list has a name of its own, or its samples would be counted with another's.
func TestNamesOfListsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, l := range table() {
		if seen[l.name] {
			t.Errorf("two lists are %q", l.name)
		}
		seen[l.name] = true
		if strings.Contains(l.query, "%s") != (l.values != "") {
			t.Errorf("%s has values without a place, or a place without values", l.name)
		}
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for n := range 100 {
		hundred = append(hundred, time.Duration(n+1))
	}
	for _, tc := range []struct {
		of    []time.Duration
		share float64
		want  time.Duration
	}{{hundred, 0.5, 50}, {hundred, 0.95, 95}, {hundred, 0.99, 99}, {hundred[:1], 0.5, 1}, {hundred[:3], 0.99, 3}, {nil, 0.5, 0}} {
		if got := percentile(tc.of, tc.share); got != tc.want {
			t.Errorf("%v of %d: %d, want %d", tc.share, len(tc.of), got, tc.want)
		}
	}
}

// A goal is missed by what is above it, and by a page that the server refused.
func TestMissedGoalsAreMarked(t *testing.T) {
	t.Parallel()
	at := spot{table()[0].name, first}
	of := func(took ...time.Duration) (all []sample) {
		for _, d := range took {
			all = append(all, sample{visit: visit{at.list, at.page, ""}, took: d})
		}
		return all
	}
	refused := of(time.Millisecond)
	refused[0].failed = &refusal{status: 400}
	for want, all := range map[string][]sample{
		"": of(300*time.Millisecond, time.Millisecond), " p95": of(301*time.Millisecond, time.Millisecond),
		" p95 p99": of(time.Millisecond, time.Second+1), " refused 1": refused,
	} {
		lines := cells(all)
		if len(lines) != 1 || lines[0].spot != at || lines[0].missed() != want {
			t.Errorf("%d lines for %q", len(lines), want)
		}
	}
}

// What few people may read is requested about as often as what all read.
func TestRarePagesAreReadAsOften(t *testing.T) {
	t.Parallel()
	all, rare := []visit{{list: "all"}}, []visit{{list: "rare"}}
	p := &people{callers: []*caller{{visits: [][]visit{all, rare}}, {visits: [][]visit{all}}, {visits: [][]visit{all}}, {visits: [][]visit{all}}}}
	p.weigh()
	if upto := p.callers[0].upto; len(upto) != 2 || upto[0] != 0.25 || upto[1] != 1.25 {
		t.Fatalf("weights up to %v, want 0.25 and 1.25", upto)
	}
	counts := map[string]int{}
	for range 1000 {
		counts[p.callers[0].any().list]++
	}
	if counts["rare"] < 700 || counts["all"] < 100 {
		t.Errorf("%v of a thousand, want 800 and 200", counts)
	}
}

func TestFallOfAPair(t *testing.T) {
	t.Parallel()
	for want, p := range map[float64]pair{25: {speed{rate: 200}, speed{rate: 150}}, -50: {speed{rate: 100}, speed{rate: 150}}} {
		if got := p.fall(); got != want {
			t.Errorf("from %v to %v: %v%%, want %v", p.without, p.with, got, want)
		}
	}
}

// The parts of the file of statements are named as the sizes are, or a part would be run once.
func TestPartsOfTheFillHaveTheirSizes(t *testing.T) {
	t.Parallel()
	var z sizes
	z.complete(0.01)
	for _, s := range z.sections() {
		if numbered := strings.Contains(s.sql, "@from"); numbered != (s.count > 0) {
			t.Errorf("%s: %d rows", s.name, s.count)
		}
	}
	if z.Ended != 100_000 || z.Live != 10_000 || z.Files != 200_000 {
		t.Errorf("a hundredth is %+v", z)
	}
}

func TestWhatIsNotMeasuredIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"-only transition", "-rounds 0", "-dur 0s", "-pause -1s", "-scale 0", "-institutions 2"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", args, err)
		}
	}
	c, err := parse([]string{"-files", "77", "-only", "lists,rate"}, io.Discard)
	if err != nil || c.sizes.Files != 77 || c.sizes.Ended != 10_000_000 || fmt.Sprint(c.only) != "[lists rate]" {
		t.Errorf("%+v %v", c, err)
	}
}
