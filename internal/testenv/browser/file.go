package browser

import (
	"encoding/json"
)

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
