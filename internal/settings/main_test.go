package settings

import (
	"flag"
	"testing"

	"github.com/farol-preservation/farol/internal/testenv"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write docs/configuration.md again")
	testenv.Main(m)
}
