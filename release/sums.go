package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// texts copies the licences, which are passed on with each program.
func (r *release) texts(context.Context) error {
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES"} {
		text, err := os.ReadFile(filepath.Join(r.src, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, name), text, 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	return nil
}

// sums writes SHA256SUMS of all files, and signs it by ssh-keygen, which systems have
// that have no other program to check a signature with.
func (r *release) sums(ctx context.Context) error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		sum, err := sumOf(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, f.Name())
	}
	path := filepath.Join(r.out, "SHA256SUMS")
	if err := os.WriteFile(path, []byte(sums.String()), 0o644); err != nil { //nolint:gosec // it is published
		return err
	}
	if r.key == "" {
		slog.WarnContext(ctx, "the release is not signed: give KEY=FILE with an SSH key")
		return nil
	}
	c := exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-n", "farol", "-f", r.key, path)
	c.Stdin, c.Stderr = os.Stdin, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("sign with %s: %w", r.key, err)
	}
	return nil
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
