// Package deploy_test checks the files of the folder deploy, and docker-compose.yml, with the
// libraries that read such files.
package deploy_test

import (
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
