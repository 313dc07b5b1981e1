package devstack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds farol into dir from the sources in root, and next to it farol-dev, which runs
// the children of a stack. It returns the path of farol; that of the other ends in -dev. The
// module of each program pins its libraries.
func Build(ctx context.Context, root, dir string) (farol string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("build farol: %w", err)
	}
	for pkg, module := range map[string]string{"./cmd/farol": root, "./farol-dev": filepath.Join(root, "dev")} {
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/", pkg)
		build.Dir = module
		build.Env = append(build.Environ(), "CGO_ENABLED=0") // as for production
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s in %s: %w\n%s", pkg, module, err, out)
		}
	}
	return filepath.Join(dir, "farol"), nil
}
