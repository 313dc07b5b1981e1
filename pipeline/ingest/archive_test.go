package ingest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/remove"
	"github.com/farol-preservation/farol/pipeline/restore"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }

// archive is what the tests of this package add to one.
type archive struct{ *pipelinetest.Archive }

func newArchive(t testing.TB) *archive {
	t.Helper()
	return newArchiveIn(t, testenv.Database(t))
}

func newArchiveIn(t testing.TB, db *pgxpool.Pool) *archive {
	t.Helper()
	return &archive{pipelinetest.NewIn(t, db, func(d pipeline.Deps) []pipeline.Step {
		return append(append(Steps(d), restore.Steps(d)...), remove.Steps(d)...)
	})}
}
