// Package preserved_test has a model of what is preserved: objects, files, copies, events,
// receipts and requests. It has no code of its own.
package preserved_test

import (
	"testing"

	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }
