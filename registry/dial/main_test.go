package dial_test

import (
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
