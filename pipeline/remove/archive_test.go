package remove

import (
	"testing"

	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/restore"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }

// round is few enough for several rounds.
const round = 1

// archive is what the tests of this package add to one.
type archive struct{ *pipelinetest.Archive }

func newArchive(t testing.TB) *archive {
	t.Helper()
	return &archive{pipelinetest.New(t, func(d pipeline.Deps) []pipeline.Step {
		own := Steps(d)
		own[0].Run.(*deletion).round = round //nolint:forcetypeassert // it would fail
		return append(append(ingest.Steps(d), restore.Steps(d)...), own...)
	})}
}
