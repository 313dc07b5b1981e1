package steps

import (
	"testing"

	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }

// archive is what the tests of this package add to one.
type archive struct{ *pipelinetest.Archive }

func newArchive(t testing.TB) *archive {
	t.Helper()
	return &archive{pipelinetest.New(t, All)}
}
