package nsqcompat

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// Why the mirror has a publisher of its own: decision 9 in docs/decisions.md. When this test fails,
// go-nsq's Producer no longer has its data race, and may be worth another try.
func TestProducerOfGoNSQRacesWhenItReconnects(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*testenv.Patience) // it compiles the library first
	defer cancel()
	c := exec.CommandContext(ctx, "go", "run", "-race", "./testdata/producer")
	c.Env = append(os.Environ(), "CGO_ENABLED=1", "GORACE=halt_on_error=1")
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "WARNING: DATA RACE") || !strings.Contains(string(out), "go-nsq.(*Producer).connect()") {
		t.Errorf("it ended with %v: %s", err, out)
	}
}
