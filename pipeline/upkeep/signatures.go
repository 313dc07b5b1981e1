package upkeep

import (
	"context"
	"time"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/formats"
	"github.com/farol-preservation/farol/storage"
)

// Affected are stored files that new signatures may give another format.
type Affected struct {
	PUID    string `json:"puid"` // as they are on record; "": unknown
	Method  string `json:"method"`
	Ext     string `json:"extension"` // of the names
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	Because string `json:"because"` // formats whose signatures differ, or an extension
}

// Preview is what a change of signatures concerns, as far as the record tells.
type Preview struct {
	Old      string            `json:"signatures"`
	New      string            `json:"new_signatures"`
	Added    []string          `json:"formats_added"`
	Removed  []string          `json:"formats_removed"`
	Changed  []string          `json:"formats_changed"`
	Affected []Affected        `json:"affected"`
	Files    int64             `json:"files"` // of those affected
	Bytes    int64             `json:"bytes"`
	Spared   int64             `json:"files_spared"` // need not be read
	Reading  []formats.Reading `json:"reading"`

	// Filter takes the files that are affected and not yet identified by the new signatures.
	Filter formats.Filter `json:"-"`
}

// What one file costs at most: as much as the identifier reads of it, in its requests.
const (
	mostRead    = 10 << 20
	readRequest = 256 << 10
)

// PreviewSignatures counts the files that a change of signatures concerns and reads none
// of them. Files are judged as if the old signatures had identified them.
func PreviewSignatures(ctx context.Context, r *registry.Registry, targets copies.Targets, d *format.Difference) (p Preview, err error) {
	p = Preview{Old: d.Old, New: d.New, Added: d.Added, Removed: d.Removed, Changed: d.Changed, Affected: []Affected{}, Filter: formats.Filter{NotBy: d.New}}
	groups, err := formats.In(r).Groups(ctx, d.New)
	if err != nil {
		return p, err
	}
	for _, g := range groups {
		because := d.Affects(g.PUID, g.Method, "x"+g.Ext)
		if because == "" {
			p.Spared += g.Files
			continue
		}
		p.Affected = append(p.Affected, Affected{g.PUID, g.Method, g.Ext, g.Files, g.Bytes, because})
		p.Filter.Groups = append(p.Filter.Groups, g.Group)
		p.Files, p.Bytes = p.Files+g.Files, p.Bytes+g.Bytes
	}
	classes := formats.Classes{}
	for name, bucket := range targets {
		classes[name] = ""
		if o := (storage.Object{StorageClass: bucket.Class()}); !o.Readable(time.Now()) {
			classes[name] = bucket.Class()
		}
	}
	p.Reading, err = formats.In(r).Readings(ctx, p.Filter, classes, mostRead, readRequest)
	return p, err
}
