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
	found := gather(all)
	var lines []*cell
	for _, at := range slices.SortedFunc(maps.Keys(found), func(a, b spot) int { return cmp.Compare(a.list, b.list) }) {
		lines = append(lines, found[at])
	}
	return printLines(m.out, "page\topened", lines, extra)
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

// open opens a page with the session of a person.
func (c *caller) open(ctx context.Context, url string) ([]byte, error) {
	text, err := c.read(ctx, url, "Cookie", c.cookie, "Accept", "text/html", "Accept-Encoding", "gzip") // as it is on the line
	var refused *refusal
	if errors.As(err, &refused) {
		words, unreadable := unpacked(text)
		refused.body = string(words)
		return nil, errors.Join(err, unreadable)
	}
	return text, err
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
