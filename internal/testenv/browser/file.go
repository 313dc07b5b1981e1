package browser

import (
	"encoding/json"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
)

// Choose chooses a file of this machine in the field for files that a selector finds.
func (b *Tab) Choose(selector, path string) {
	b.t.Helper()
	quoted, err := json.Marshal(selector)
	if err != nil {
		b.t.Fatal(err)
	}
	field := must(b, runtime.Evaluate, runtime.EvaluateParams{Expression: "document.querySelector(" + string(quoted) + ")"})
	must(b, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: []string{path}, ObjectID: field.Result.ObjectID})
}

// Drop drops a file of this machine on the middle of the page.
func (b *Tab) Drop(path string) {
	b.t.Helper()
	for _, kind := range []input.DispatchDragEventType{"dragEnter", "dragOver", "drop"} {
		must(b, input.DispatchDragEvent, input.DispatchDragEventParams{
			Type: kind, X: 700, Y: 400, Data: &input.DragData{Files: []string{path}, DragOperationsMask: 1},
		})
	}
}
