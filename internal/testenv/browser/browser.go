// Package browser lets tests use pages as a person does, in a real Chromium. Chromium is
// one process for all tests of a package; each [Tab] has cookies and storage of its own.
package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/farol-preservation/farol/internal/testenv"
)

// Tab is one tab. Its methods fail the test when they cannot do what they are called for.
// They wait for what a page shows later, so a test needs no pauses. A tab is for one
// goroutine.
//
// A test fails if its pages report a problem that it does not [Tab.Expect] and that
// [Tab.Problems] has not returned.
type Tab struct {
	t    testing.TB
	ctx  context.Context //nolint:containedctx // chromedp's contexts are tabs
	base string

	plain  bool // pages may not run scripts
	mu     sync.Mutex
	wrong  []string    // guarded by mu
	known  []*expected // guarded by mu
	closed bool        // guarded by mu
}

// Open opens a tab of 1440 × 900 pixels. Paths of its pages begin after base, such as
// http://127.0.0.1:8080.
func Open(t testing.TB, base string) *Tab {
	t.Helper()
	b := &Tab{t: t, base: base}
	allocator, release := remote.NewAllocator(context.Background(), "ws://"+testenv.Chromium(t))
	ctx, leave := chromedp.NewContext(allocator, chromedp.WithNewBrowserContext(),
		chromedp.WithListener(b.listen), chromedp.WithErrorf(func(string, ...any) {})) // it reports events that are newer than it
	b.ctx = ctx
	t.Cleanup(func() {
		b.close()
		leave()
		release()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("browser: open a tab:", err)
	}
	// Of each request that is sent, Chromium would hand over the whole body: 16 MiB of a bag.
	must(b, network.Disable, cdp.Empty{})
	b.Size(1440, 900)
	b.Dark(false)
	return b
}

// close fails the test for problems that it does not expect, and shows what a failed
// test has last seen.
func (b *Tab) close() {
	for _, problem := range b.Problems() {
		b.t.Error("browser: ", problem)
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	if !b.t.Failed() {
		return
	}
	text, err := evaluate[string](b, `location.href + "\n" + document.body.innerText`)
	if err != nil {
		b.t.Log("browser: read the last page:", err)
		return
	}
	b.t.Logf("browser: the last page is in %s:\n%s", b.Screenshot("failed"), text)
}

// listen collects what a page reports. Requests that fail or are refused, and what its
// policy of contents forbids, are entries of the log; what a script does not catch is none.
func (b *Tab) listen(event any) {
	var problem string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			problem = e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventExceptionThrown:
		problem = thrown(e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if slices.Contains([]runtime.ConsoleAPICalledType{"error", "warning", "assert"}, e.Type) {
			for _, arg := range e.Args {
				problem += cmp.Or(arg.Description, strings.Trim(string(arg.Value), `"`)) + " "
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if problem != "" && !b.closed && !slices.ContainsFunc(b.known, func(e *expected) bool { return e.takes(problem) }) {
		b.wrong = append(b.wrong, strings.TrimSpace(problem))
	}
}

func thrown(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Exception.Description
	}
	return d.Text
}

// Expect has up to so many problems be the test's own doing that have all these parts, such as
// "status of 404" and a URL. Call it before they are brought about: when a page reports a
// request that failed is not known.
func (b *Tab) Expect(most int, parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = append(b.known, &expected{most, parts})
}

// expected are problems that are no failure of the test.
type expected struct {
	most  int
	parts []string
}

// takes reports whether a problem is one of them, and counts it.
func (e *expected) takes(problem string) bool {
	if e.most == 0 || slices.ContainsFunc(e.parts, func(part string) bool { return !strings.Contains(problem, part) }) {
		return false
	}
	e.most--
	return true
}

// Problems returns what the pages have reported since the last call: errors and warnings
// on the console, exceptions, requests that failed, and breaches of the content security
// policy.
func (b *Tab) Problems() []string {
	if _, err := evaluate[bool](b, `true`); err != nil { // what is under way comes before its answer
		b.t.Log("browser: ask for problems:", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.wrong
	b.wrong = nil
	return list
}

// Screenshot writes the whole page to a file and returns its path. The variable
// FAROL_TEST_SCREENSHOTS names the directory; else it is the test's own, which
// `go test -artifacts` keeps.
func (b *Tab) Screenshot(name string) string {
	b.t.Helper()
	yes := true
	r, err := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &yes, OptimizeForSpeed: &yes})
	dir := os.Getenv("FAROL_TEST_SCREENSHOTS")
	if dir == "" {
		dir = b.t.ArtifactDir()
	}
	path := filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-").Replace(b.t.Name()+" "+name)+".png")
	if err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(path, r.Data, 0o600)); err != nil {
		b.t.Error("browser: take a screenshot:", err)
	}
	return path
}

// patience is how long Chromium may take for one command.
const patience = time.Minute

// call sends a command to the tab.
func call[P, R any](b *Tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) (R, error) {
		return cdp.Call(ctx, t, command, params)
	})
}

// must is call for what has to succeed.
func must[P, R any](b *Tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := call(b, command, params)
	if err != nil {
		b.t.Fatal("browser:", fmt.Errorf("%s: %w", command.Method, err))
	}
	return r
}
