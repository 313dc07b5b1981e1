package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

func TestTokensAreForStagesThatThereAre(t *testing.T) {
	t.Parallel()
	r := registry.New(testenv.Database(t))
	_, _, err := r.AddToken(t.Context(), record.Token{Name: "a", Rights: []string{registry.RightLease}, Stages: []registry.Stage{"Validate", "Virus Scna"}})
	if !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), `there is no stage ["Virus Scna"]`) {
		t.Errorf("a token for a stage that there is not: %v", err)
	}
	if _, _, err := r.AddToken(t.Context(), record.Token{Name: "a", Rights: []string{registry.RightLease}, Stages: []registry.Stage{"Validate"}}); err != nil {
		t.Errorf("a token for one that there is: %v", err)
	}
}
