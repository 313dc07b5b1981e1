package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/farol-preservation/farol/internal/testenv"
)

// Go opens a page: a path, or a whole address.
func (b *Tab) Go(path string) {
	b.t.Helper()
	if !strings.Contains(path, "://") {
		path = b.base + path
	}
	if err := chromedp.Do(b.ctx, chromedp.Navigate(path)); err != nil {
		b.t.Fatalf("browser: open %s: %v", path, err)
	}
}

// SignIn signs the tab's person in by a link that works once.
func (b *Tab) SignIn(link string) {
	b.t.Helper()
	b.Go(link)
	b.Click("button", "Sign in")
	b.Until(`to be signed in`, `document.readyState == "complete" && !location.pathname.startsWith("/sign-in")`)
}

// Value evaluates an expression of JavaScript on the page; a promise is awaited.
func Value[T any](b *Tab, expression string) T {
	b.t.Helper()
	v, err := evaluate[T](b, expression)
	if err != nil {
		b.t.Fatalf("browser: %s: %v", expression, err)
	}
	return v
}

func evaluate[T any](b *Tab, expression string) (v T, err error) {
	return evaluateIn[T](b, 0, expression)
}

// evaluateIn is evaluate in a context of scripts; 0 is the page's own.
func evaluateIn[T any](b *Tab, world runtime.ExecutionContextID, expression string) (v T, err error) {
	yes := true
	r, err := call(b, runtime.Evaluate, runtime.EvaluateParams{Expression: expression, ContextID: world, ReturnByValue: &yes, AwaitPromise: &yes})
	switch {
	case err != nil:
		return v, err
	case r.ExceptionDetails != nil:
		return v, fmt.Errorf("it threw %s", thrown(r.ExceptionDetails))
	}
	if err := json.Unmarshal(r.Result.Value, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", r.Result.Value, err)
	}
	return v, nil
}

// Until waits for an expression of JavaScript to be true, also on the next page. What it
// waits for is named in the test's failure.
func (b *Tab) Until(what, expression string) {
	b.t.Helper()
	var last error // a page that is on its way to another answers nothing
	defer func() {
		if last != nil && b.t.Failed() {
			b.t.Log("browser: the page was asked at last:", last)
		}
	}()
	testenv.Eventually(b.t, "browser: wait for "+what, func() bool {
		v, err := evaluate[bool](b, expression)
		last = err
		return err == nil && v
	})
}

// Shows waits for a text that a person sees on the page.
func (b *Tab) Shows(text string) {
	b.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Until(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+string(quoted)+")")
}

// element is what a role and an accessible name lead to.
type element struct {
	node   cdp.BackendNodeID
	object runtime.RemoteObjectID
}

// find waits for the only element with an accessible name that has one of the roles, as
// people find it who use a screen reader, and that is ready.
func (b *Tab) find(name string, roles []string, ready func(element) bool) {
	b.t.Helper()
	testenv.Eventually(b.t, fmt.Sprintf("browser: wait for one %s %q to be there, uncovered", strings.Join(roles, " or "), name), func() bool {
		list, err := b.named(name, roles)
		if err != nil || len(list) != 1 {
			return false
		}
		r, err := call(b, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: list[0]})
		if err != nil {
			return false
		}
		return ready(element{list[0], r.Object.ObjectID})
	})
}

// named are the elements with a name and one of the roles.
func (b *Tab) named(name string, roles []string) (list []cdp.BackendNodeID, err error) {
	document, err := call(b, runtime.Evaluate, runtime.EvaluateParams{Expression: "document"})
	if err != nil {
		return nil, err
	}
	r, err := call(b, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{ObjectID: document.Result.ObjectID, AccessibleName: name})
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes {
		var role string
		if n.Ignored || n.Role == nil || json.Unmarshal(n.Role.Value, &role) != nil || !slices.Contains(roles, role) {
			continue
		}
		list = append(list, n.BackendDOMNodeID)
	}
	return list, nil
}

// Click clicks the only element with a role and an accessible name, once nothing covers it.
func (b *Tab) Click(role, name string) {
	b.t.Helper()
	var x, y float64
	b.find(name, []string{role}, func(e element) bool {
		_, err := call(b, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: e.node})
		if err != nil {
			return false
		}
		r, err := call(b, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: e.node})
		if err != nil || len(r.Quads) == 0 {
			return false
		}
		q := r.Quads[0] // the corners of its first line
		x, y = (q[0]+q[4])/2, (q[1]+q[5])/2
		return b.does(e, fmt.Sprintf(`function() { const e = document.elementFromPoint(%f, %f); return this.contains(e) || !!e?.contains(this) && e.tagName == "LABEL" }`, x, y))
	})
	for _, kind := range []input.DispatchMouseEventType{"mouseMoved", "mousePressed", "mouseReleased"} {
		must(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: "left", ClickCount: 1})
	}
}

// Fill writes a text into the only field with a label, in place of what it has.
func (b *Tab) Fill(label, text string) {
	b.t.Helper()
	b.find(label, []string{"textbox", "searchbox", "combobox", "spinbutton"}, func(e element) bool {
		return b.does(e, `function() { this.focus(); this.select(); return document.activeElement == this }`)
	})
	must(b, input.InsertText, input.InsertTextParams{Text: text})
}

// does reports whether a function of an element returns true.
func (b *Tab) does(e element, function string) bool {
	yes := true
	r, err := call(b, runtime.CallFunctionOn, runtime.CallFunctionOnParams{FunctionDeclaration: function, ObjectID: e.object, ReturnByValue: &yes})
	return err == nil && r.ExceptionDetails == nil && string(r.Result.Value) == "true"
}

// Press presses keys, one after the other: letters, "\t" for Tab, "\r" for Enter. As with a
// keyboard, a key types nothing if the page has prevented that: chromedp.KeyEvent would type it
// in an event of its own.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		must(b, input.DispatchKeyEvent, down)
		must(b, input.DispatchKeyEvent, up)
	}
}
