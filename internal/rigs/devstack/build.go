package devstack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Checkout unpacks a commit of the repository in root into a new directory, which is the
// caller's to delete, and returns its number and date. Unlike a worktree, it leaves nothing in
// the repository.
func Checkout(ctx context.Context, root, rev, dir string) (commit string, err error) {
	commit, err = Output(ctx, root, "git", "log", "-1", "--format=%h of %cs", "--end-of-options", rev+"^{commit}", "--")
	if err != nil {
		return "", fmt.Errorf("find commit %q; if this is a shallow clone, run git fetch --unshallow: %w", rev, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for commit %s: %w", rev, err)
	}
	archive := filepath.Join(dir, "commit.tar")
	_, err = Output(ctx, root, "git", "archive", "--format=tar", "--output="+archive, rev)
	if err == nil {
		_, err = Output(ctx, dir, "tar", "-xf", archive)
	}
	if err != nil {
		return "", fmt.Errorf("unpack commit %s: %w", rev, err)
	}
	return strings.TrimSpace(commit), nil
}

// Output runs a command in dir, as for production, and returns what it prints.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(c.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// Build builds farol into dir from the sources in root, and next to it farol-dev, which runs
// the children of a stack. It returns the path of farol; that of the other ends in -dev. The
// module of each program pins its libraries.
func Build(ctx context.Context, root, dir string) (farol string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("build farol: %w", err)
	}
	for pkg, module := range map[string]string{"./cmd/farol": root, "./farol-dev": filepath.Join(root, "dev")} {
		if _, err := Output(ctx, module, "go", "build", "-trimpath", "-o", dir+"/", pkg); err != nil {
			return "", fmt.Errorf("build %s in %s: %w", pkg, module, err)
		}
	}
	return filepath.Join(dir, "farol"), nil
}
