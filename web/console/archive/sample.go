package archive

import (
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
)

// samplePage is a sample of files, to be drawn again by others.
type samplePage struct {
	Filter url.Values
	Seed   string // that is proposed
	All    bool   // the person may choose an institution
	Sample *record.Sample
	Broad  string
	Again  string // address that draws the same
	JSON   string
	Bad    int64 // copies
	Unread int64
}

func loadSample(v *frame.Visit) (any, error) {
	d := samplePage{Filter: v.Query("institution", "seed", "n", "through"), All: v.Caller.Scope.All(), Seed: "audit " + time.Now().UTC().Format(time.DateOnly)}
	if d.Filter.Get("seed") == "" {
		return d, nil
	}
	found, err := frame.Get[record.Sample](v, "files/sample", d.Filter)
	reason, broad := frame.TooBroad(err)
	if d.Broad = reason; broad {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Sample = &found
	for _, f := range found.Files {
		d.Bad, d.Unread = d.Bad+f.Bad, d.Unread+f.Unread
	}
	d.Filter.Set("through", words.Str(found.Through))
	d.Again, d.JSON = "/audit/sample?"+d.Filter.Encode(), "/api/v1/files/sample?"+d.Filter.Encode()
	return d, nil
}
