package console

import (
	"fmt"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/web/api"
)

// itemPage is all there is to know of an item.
type itemPage struct {
	Item    api.ItemView
	Tag     string // which decisions are sent with
	Explain explain.Explanation
}

// item shows a work item.
func (p *Pages) item(v *visit) (any, error) {
	var d itemPage
	var err error
	if d.Item, d.Tag, err = getTagged[api.ItemView](v, "items/"+v.id(), nil); err != nil {
		return nil, err
	}
	if d.Explain, err = get[explain.Explanation](v, "items/"+v.id()+"/explain", nil); err != nil {
		return nil, err
	}
	v.title = fmt.Sprintf("Item %d – %s at %s", d.Item.ID, d.Item.Status, d.Item.Stage)
	v.watch.open = d.Item.ID
	return d, nil
}
