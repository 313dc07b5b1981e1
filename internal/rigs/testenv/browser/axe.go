package browser

import (
	"bytes"
	"compress/gzip"
	_ "embed" // axe-core
	"fmt"
	"io"
	"strings"
	"sync"
)

//go:embed axe/axe.min.js.gz
var compressed []byte

// axe is the script of axe-core.
var axe = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // a file, read once
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	return string(text), nil
})

// Violation is a rule of WCAG 2.2, level A or AA, and an element of the page that breaks it.
type Violation struct {
	Rule     string // axe's name of it
	Help     string // what it asks for
	Selector string // of the element
	HTML     string // of the element
	Why      string // what has to change
}

// String is the violation as a test prints it.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s: %s\n\t%s\n\t%s", v.Rule, v.Help, v.Selector, v.HTML, strings.ReplaceAll(v.Why, "\n", "\n\t"))
}

// run lists what breaks rules of levels A and AA. The size of targets is off unless it is asked for.
const run = `axe.run(document, {
	runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}, rules: {"target-size": {enabled: true}}, resultTypes: ["violations"],
}).then(r => r.violations.flatMap(v => v.nodes.map(n => (
	{Rule: v.id, Help: v.help, Selector: n.target.flat().join(" "), HTML: n.html.slice(0, 300), Why: n.failureSummary}))))`

// Axe returns what axe-core finds on the page as it is, by the success criteria of levels A
// and AA alone. Its script runs beside those of the page, whose content security policy does not
// hold for it.
func (b *Tab) Axe() []Violation {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal("browser:", err)
	}
	if b.plain { // which holds for its promises as well
		b.Script(true)
		defer b.Script(false)
	}
	tree := must[struct {
		FrameTree struct{ Frame struct{ ID string } }
	}](b, "Page.getFrameTree", params{})
	beside := must[struct{ ExecutionContextID int }](b, "Page.createIsolatedWorld", params{"frameId": tree.FrameTree.Frame.ID, "worldName": "axe"})
	world := params{"contextId": beside.ExecutionContextID}
	loaded, err := evaluateIn[bool](b, world, `typeof axe == "object"`)
	if err == nil && !loaded {
		_, err = evaluateIn[bool](b, world, script+"; true")
	}
	var list []Violation
	if err == nil {
		list, err = evaluateIn[[]Violation](b, world, run)
	}
	if err != nil {
		b.t.Fatal("browser: run axe-core:", err)
	}
	return list
}

// Sideways returns the elements that reach beyond the right edge of a page that scrolls
// sideways; a page may do so at no width from 320 pixels on (WCAG 1.4.10).
func (b *Tab) Sideways() []string {
	b.t.Helper()
	return Value[[]string](b, `(() => {
		const root = document.documentElement
		if (root.scrollWidth <= root.clientWidth) return []
		const wide = [...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > root.clientWidth)
		return ["the page is " + root.scrollWidth + " pixels wide", ...wide.map(e => e.outerHTML.slice(0, 200))]
	})()`)
}
