// Package browser lets tests use pages as a person does, in a real Chromium. Chromium is
// one process for all tests of a package; each [Tab] has cookies and storage of its own.
package browser

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Tab is one tab. Its methods fail the test when they cannot do what they are called for.
// They wait for what a page shows later, so a test needs no pauses. A tab is for one
// goroutine.
//
// A test fails if its pages report a problem that it does not [Tab.Expect] and that
// [Tab.Problems] has not returned.
type Tab struct {
	t       testing.TB
	browser *chromium
	session string
	base    string

	plain  bool // pages may not run scripts
	mu     sync.Mutex
	loaded map[string]bool // what is there as a whole, by the number of its loading; guarded by mu
	wrong  []string        // guarded by mu
	known  []*expected     // guarded by mu
	closed bool            // guarded by mu
}

// Open opens a tab of 1440 × 900 pixels. Paths of its pages begin after base, such as
// http://127.0.0.1:8080.
func Open(t testing.TB, base string) *Tab {
	t.Helper()
	b := &Tab{t: t, base: base, loaded: map[string]bool{}}
	var leave func()
	c, err := running(t)
	if err == nil {
		b.browser = c
		b.session, leave, err = c.attach(b)
	}
	if err != nil {
		t.Fatal("browser: open a tab:", err)
	}
	t.Cleanup(func() {
		b.close()
		leave()
	})
	for _, domain := range []string{"Runtime", "Log", "Page", "DOM"} {
		must[empty](b, domain+".enable", params{})
	}
	must[empty](b, "Page.setLifecycleEventsEnabled", params{"enabled": true})
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

// event has what counts of the events that a tab listens to.
type event struct {
	LoaderID, Name   string                            // of a page on its way
	Entry            struct{ Level, Text, URL string } // of the log
	ExceptionDetails *exception
	Type             string // of a message on the console, with its arguments
	Args             []struct {
		Description string
		Value       json.RawMessage
	}
}

// exception is what a script has thrown.
type exception struct {
	Text      string
	Exception struct{ Description string }
}

func (e *exception) String() string { return cmp.Or(e.Exception.Description, e.Text) }

// listen collects what a page reports. Requests that fail or are refused, and what its
// policy of contents forbids, are entries of the log; what a script does not catch is none.
func (b *Tab) listen(m message) {
	var problem string
	var e event
	if err := json.Unmarshal(m.Params, &e); err != nil {
		problem = fmt.Sprintf("read %s: %v", m.Method, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m.Method {
	case "Page.lifecycleEvent":
		b.loaded[e.LoaderID] = b.loaded[e.LoaderID] || e.Name == "load"
	case "Log.entryAdded":
		if e.Entry.Level == "error" {
			problem = e.Entry.Text + " " + e.Entry.URL
		}
	case "Runtime.exceptionThrown":
		problem = e.ExceptionDetails.String()
	case "Runtime.consoleAPICalled":
		if slices.Contains([]string{"error", "warning", "assert"}, e.Type) {
			for _, arg := range e.Args {
				problem += cmp.Or(arg.Description, strings.Trim(string(arg.Value), `"`)) + " "
			}
		}
	}
	if problem != "" && !b.closed && !slices.ContainsFunc(b.known, func(e *expected) bool { return e.takes(problem) }) {
		b.wrong = append(b.wrong, strings.TrimSpace(problem))
	}
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
	r, err := call[struct{ Data []byte }](b, "Page.captureScreenshot", params{"captureBeyondViewport": true, "optimizeForSpeed": true})
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

// call sends a command to the tab.
func call[R any](b *Tab, method string, p params) (R, error) {
	return ask[R](b.browser, b.session, method, p)
}

// must is call for what has to succeed.
func must[R any](b *Tab, method string, p params) R {
	b.t.Helper()
	r, err := call[R](b, method, p)
	if err != nil {
		b.t.Fatal("browser:", err)
	}
	return r
}

// empty is an answer that says nothing.
type empty struct{}
