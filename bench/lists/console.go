package lists

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry"
	accounts "github.com/farol-preservation/farol/registry/people"
)

// goalBytes is how large a page may be, with its style and its script.
const goalBytes = 60_000

// listed finds the pages in the list of pages, numbered the ID in an address, and assets what a page
// needs to look and work as it does.
var (
	numbered = regexp.MustCompile(`/[0-9]+$`)
	listed   = regexp.MustCompile(`<li><a href="(/[^"]*)"`)
	assets   = regexp.MustCompile(`(?:href|src)="(/assets/[^"]*\.(?:css|js)[^"]*)"`)
)

// console has people open the pages of the console, while other pages of theirs are kept up to
// date. Which pages there are is read from the list of pages of each person.
func (m *measurement) console(ctx context.Context) error {
	visits := map[*caller][]visit{}
	extra := 0
	for _, c := range m.people.callers {
		first, err := m.signIn(ctx, c)
		if err != nil {
			return err
		}
		defer func() { c.cookie = "" }()
		if visits[c], err = m.pagesOf(ctx, c, first); err != nil {
			return err
		}
		for _, found := range assets.FindAllStringSubmatch(first, -1) {
			if extra < goalBytes && c == m.people.callers[0] {
				text, err := c.open(ctx, m.server.url+found[1])
				if err != nil {
					return err
				}
				extra += len(text)
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	group, running := errgroup.WithContext(running)
	for n := range m.config.streams {
		c := *m.people.callers[n%len(m.people.callers)] // in a session of its own
		c.client = &http.Client{}
		if _, err := m.signIn(ctx, &c); err != nil {
			stop()
			return err
		}
		group.Go(func() error { return m.watch(running, &c) })
	}
	all, rate, err := m.people.crowd(ctx, m.config.callers, m.config.dur, m.config.pause, m.server.url, func(c *caller) visit {
		some := visits[c]
		return some[rand.IntN(len(some))]
	})
	stop()
	if err := group.Wait(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(m.out, "Pages, %d people with %d streams, a pause of %s: %d requests, %.0f a second; style and script have %d bytes\n",
		m.config.callers, m.config.streams, m.config.pause, len(all), rate, extra)
	return printPages(m.out, all, extra)
}

// signIn gives a person a session, and returns the first page.
func (m *measurement) signIn(ctx context.Context, c *caller) (string, error) {
	c.cookie = ""
	r := accounts.In(registry.New(m.DB))
	p, err := r.ByEmail(ctx, c.name)
	if err != nil {
		return "", err
	}
	secret, err := r.MakeLink(ctx, p.ID, accounts.SignIn)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, m.server.url+accounts.LinkPath(accounts.SignIn, secret), nil)
	if err != nil {
		return "", fmt.Errorf("make a request: %w", err)
	}
	q.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", rand.IntN(256), rand.IntN(256), rand.IntN(256))) // attempts from one address are limited
	client := *c.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := client.Do(q)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	defer a.Body.Close() //nolint:errcheck // nothing is read
	for _, one := range a.Cookies() {
		if one.Name == "farol" {
			c.cookie = "farol=" + one.Value
		}
	}
	if c.cookie == "" {
		return "", fmt.Errorf("sign in as %s: %s", c.name, a.Status)
	}
	text, err := c.open(ctx, m.server.url+"/")
	if err != nil {
		return "", err
	}
	words, err := unpacked(text)
	return string(words), err
}

func unpacked(page []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("unpack a page: %w", err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack a page: %w", err)
	}
	return text, nil
}

// pagesOf are the pages that a person may open.
func (m *measurement) pagesOf(ctx context.Context, c *caller, first string) (list []visit, err error) {
	for _, found := range listed.FindAllStringSubmatch(first, -1) {
		list = append(list, visit{list: numbered.ReplaceAllString(found[1], "/{id}"), url: found[1]})
	}
	for _, tab := range []string{"live", "review", "failed", "ended"} {
		list = append(list, visit{list: "/items?tab=" + tab, url: "/items?tab=" + tab})
	}
	for _, id := range m.people.items[c.scope][:min(20, len(m.people.items[c.scope]))] {
		list = append(list, visit{list: "/items/{id}", url: fmt.Sprintf("/items/%d", id)})
	}
	for kind, table := range map[string]string{"/objects/": "intellectual_objects", "/files/": "generic_files"} {
		if !strings.Contains(first, `<li><a href="`+strings.TrimSuffix(kind, "/")+`"`) {
			continue
		}
		ids, err := texts(ctx, m.DB, strings.ReplaceAll(`SELECT x.id::text FROM `+from(table), "{in}", c.scope.in("x.institution_id")))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			list = append(list, visit{list: kind + "{id}", url: kind + id})
		}
	}
	if len(list) < 10 {
		return nil, fmt.Errorf("the first page of %s lists %d pages", c.name, len(list))
	}
	return list, nil
}

// open opens a page with the session of a person; what is no success is an error.
func (c *caller) open(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Cookie", c.cookie)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Accept-Encoding", "gzip") // as it is on the line
	got, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	if got.StatusCode != http.StatusOK || got.Request.URL.Path == "/sign-in" {
		words, err := unpacked(text)
		return nil, errors.Join(&refusal{got.StatusCode, url, string(words)}, err)
	}
	return text, nil
}

// watch is a page that is kept up to date until ctx is done.
func (m *measurement) watch(ctx context.Context, c *caller) error {
	var ids []string
	for range 50 {
		ids = append(ids, fmt.Sprint(m.people.items[c.scope][rand.IntN(len(m.people.items[c.scope]))]))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.server.url+"/events-stream?items="+strings.Join(ids, ","), nil)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Cookie", c.cookie)
	a, err := c.client.Do(r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	defer a.Body.Close() //nolint:errcheck // read to its end
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("open a stream: %s", a.Status)
	}
	_, err = io.Copy(io.Discard, a.Body)
	if ctx.Err() == nil {
		return fmt.Errorf("a stream ended: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func printPages(out io.Writer, all []sample, extra int) error {
	found := map[string][]sample{}
	for _, s := range all {
		found[s.visit.list] = append(found[s.visit.list], s)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "page\topened\tp50 ms\tp95 ms\tp99 ms\tmax ms\tkB\tmissed\t  slowest for\n")
	bad := 0
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c := cell{}
		size := 0
		for _, s := range found[name] {
			c.took = append(c.took, s.took)
			size = max(size, s.bytes)
			if s.failed != nil {
				c.refused++
			}
			if s.took > c.slowest.took {
				c.slowest = s
			}
		}
		slices.Sort(c.took)
		missed := c.missed()
		if size+extra > goalBytes {
			missed += " size"
		}
		if missed != "" {
			bad++
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.1f\t%s\t  %s\n", name, len(c.took), ms(percentile(c.took, 0.5)), ms(percentile(c.took, 0.95)),
			ms(percentile(c.took, 0.99)), ms(c.took[len(c.took)-1]), float64(size)/1000, missed, c.slowest.caller)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the pages: %w", err)
	}
	_, err := fmt.Fprintf(out, "%d of %d pages miss a goal: p95 at most %s, p99 at most %s, %d bytes with style and script, and nothing refused.\n\n",
		bad, len(found), goalP95, goalP99, goalBytes)
	return err
}
