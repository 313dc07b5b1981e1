package archive

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type sampleQuery struct {
	Institution string `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	Seed        string `query:"seed" minLength:"1" maxLength:"100" default:"1" doc:"Any text. The same seed draws the same files again, with the same n and through"`
	N           int    `query:"n" minimum:"1" maximum:"1000" default:"100" doc:"How many files to draw"`
	Through     int64  `query:"through" minimum:"1" doc:"As the answer that is to be drawn again gave it; without it, from all that is on record"`
}

// samples are drawn by auditors.
func (a *handlers) samples(t *ops.API) {
	ops.Register(t, answer.Reads("files.sample", "/api/v1/files/sample", "Draw a random sample of files, with the last checks of their copies",
		"A seed draws files from the range of their IDs, so that another person can draw the same ones. Of one institution objects are drawn, and of each one of its first hundred files.",
		permission.CopiesRead),
		func(ctx context.Context, c access.Caller, in *sampleQuery) (*answer.Body[record.Sample], error) {
			found, err := browse.In(a.Registry, c.Scope).Sample(ctx, browse.SampleOf{Institution: in.Institution, Seed: in.Seed, Files: in.N, Through: in.Through})
			return answer.Of(found), err
		})
}
