package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// Go opens a page: a path, or a whole address.
func (b *Tab) Go(path string) {
	b.t.Helper()
	if !strings.Contains(path, "://") {
		path = b.base + path
	}
	r := must[struct{ LoaderID, ErrorText string }](b, "Page.navigate", params{"url": path})
	if r.ErrorText != "" {
		b.t.Fatalf("browser: open %s: %s", path, r.ErrorText)
	}
	testenv.Eventually(b.t, "browser: open "+path, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return r.LoaderID == "" || b.loaded[r.LoaderID] // "": it is the same page
	})
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
	return evaluateIn[T](b, params{}, expression)
}

// evaluateIn is evaluate in a context of scripts, if the parameters name one.
func evaluateIn[T any](b *Tab, world params, expression string) (v T, err error) {
	world["expression"], world["returnByValue"], world["awaitPromise"] = expression, true, true
	r, err := call[evaluated](b, "Runtime.evaluate", world)
	switch {
	case err != nil:
		return v, err
	case r.ExceptionDetails != nil:
		return v, fmt.Errorf("it threw %s", r.ExceptionDetails)
	}
	if err := json.Unmarshal(r.Result.Value, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", r.Result.Value, err)
	}
	return v, nil
}

// evaluated is what an expression or a function of JavaScript came to.
type evaluated struct {
	Result struct {
		Value    json.RawMessage
		ObjectID string
	}
	ExceptionDetails *exception
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
	node   int
	object string
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
		r, err := call[struct{ Object struct{ ObjectID string } }](b, "DOM.resolveNode", params{"backendNodeId": list[0]})
		if err != nil {
			return false
		}
		return ready(element{list[0], r.Object.ObjectID})
	})
}

// named are the elements with a name and one of the roles.
func (b *Tab) named(name string, roles []string) (list []int, err error) {
	document, err := call[evaluated](b, "Runtime.evaluate", params{"expression": "document"})
	if err != nil {
		return nil, err
	}
	r, err := call[struct {
		Nodes []struct {
			Ignored          bool
			Role             struct{ Value string }
			BackendDOMNodeID int
		}
	}](b, "Accessibility.queryAXTree", params{"objectId": document.Result.ObjectID, "accessibleName": name})
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes {
		if !n.Ignored && slices.Contains(roles, n.Role.Value) {
			list = append(list, n.BackendDOMNodeID)
		}
	}
	return list, nil
}

// Click clicks the only element with a role and an accessible name, once nothing covers it.
func (b *Tab) Click(role, name string) {
	b.t.Helper()
	var x, y float64
	b.find(name, []string{role}, func(e element) bool {
		if _, err := call[empty](b, "DOM.scrollIntoViewIfNeeded", params{"backendNodeId": e.node}); err != nil {
			return false
		}
		r, err := call[struct{ Quads [][]float64 }](b, "DOM.getContentQuads", params{"backendNodeId": e.node})
		if err != nil || len(r.Quads) == 0 {
			return false
		}
		q := r.Quads[0] // the corners of its first line
		x, y = (q[0]+q[4])/2, (q[1]+q[5])/2
		return b.does(e, fmt.Sprintf(`function() { const e = document.elementFromPoint(%f, %f); return this.contains(e) || !!e?.contains(this) && e.tagName == "LABEL" }`, x, y))
	})
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		must[empty](b, "Input.dispatchMouseEvent", params{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})
	}
}

// Fill writes a text into the only field with a label, in place of what it has.
func (b *Tab) Fill(label, text string) {
	b.t.Helper()
	b.find(label, []string{"textbox", "searchbox", "combobox", "spinbutton"}, func(e element) bool {
		return b.does(e, `function() { this.focus(); this.select(); return document.activeElement == this }`)
	})
	must[empty](b, "Input.insertText", params{"text": text})
}

// does reports whether a function of an element returns true.
func (b *Tab) does(e element, function string) bool {
	r, err := call[evaluated](b, "Runtime.callFunctionOn", params{"functionDeclaration": function, "objectId": e.object, "returnByValue": true})
	return err == nil && r.ExceptionDetails == nil && string(r.Result.Value) == "true"
}

// Press presses keys, one after the other: letters, "\t" for Tab, "\r" for Enter, "\x1b" for
// Escape. As with a keyboard, a key types nothing if the page has prevented that.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	for _, r := range keys {
		key := params{"key": string(r), "text": string(r)}
		switch r {
		case '\t', '\x1b': // which have no text
			key = params{"key": map[rune]string{'\t': "Tab", '\x1b': "Escape"}[r], "windowsVirtualKeyCode": r}
		case '\r':
			key["key"], key["windowsVirtualKeyCode"] = "Enter", r
		default:
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				key["windowsVirtualKeyCode"] = unicode.ToUpper(r)
			}
			if unicode.IsUpper(r) {
				key["modifiers"] = 8 // Shift
			}
		}
		for _, kind := range []string{"keyDown", "keyUp"} {
			key["type"] = kind
			must[empty](b, "Input.dispatchKeyEvent", key)
			delete(key, "text")
		}
	}
}

// Choose chooses a file of this machine in the field for files that a selector finds.
func (b *Tab) Choose(selector, path string) {
	b.t.Helper()
	quoted, err := json.Marshal(selector)
	if err != nil {
		b.t.Fatal(err)
	}
	field := must[evaluated](b, "Runtime.evaluate", params{"expression": "document.querySelector(" + string(quoted) + ")"})
	must[empty](b, "DOM.setFileInputFiles", params{"files": []string{path}, "objectId": field.Result.ObjectID})
}

// Drop drops a file of this machine on the middle of the page.
func (b *Tab) Drop(path string) {
	b.t.Helper()
	for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
		must[empty](b, "Input.dispatchDragEvent", params{
			"type": kind, "x": 700, "y": 400, "data": params{"items": []any{}, "files": []string{path}, "dragOperationsMask": 1},
		})
	}
}

// Size sets the size of the window in CSS pixels.
func (b *Tab) Size(width, height int64) {
	b.t.Helper()
	must[empty](b, "Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// Dark sets which colour scheme the person prefers. Nothing moves in either: a page is
// always looked at in its last state.
func (b *Tab) Dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	must[empty](b, "Emulation.setEmulatedMedia", params{"features": []params{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}})
}

// Script says whether the pages that are opened from now on may run scripts.
func (b *Tab) Script(on bool) {
	b.t.Helper()
	b.plain = !on
	must[empty](b, "Emulation.setScriptExecutionDisabled", params{"value": !on})
}

// Line is a connection to the network.
type Line string

// The lines: Slow is a bad connection of a phone, with 400 ms and 50 kB a second.
const (
	Fast Line = "fast"
	Slow Line = "slow"
	Cut  Line = "cut"
)

// Network gives the tab another line.
func (b *Tab) Network(line Line) {
	b.t.Helper()
	must[empty](b, "Network.enable", params{})
	conditions := params{"offline": line == Cut, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
	if line == Slow {
		conditions = params{"offline": false, "latency": 400, "downloadThroughput": 50e3, "uploadThroughput": 50e3}
	}
	must[empty](b, "Network.overrideNetworkState", conditions)
	conditions["urlPattern"] = "" // of all addresses
	must[empty](b, "Network.emulateNetworkConditionsByRule", params{"matchedNetworkConditions": []params{conditions}})
}
