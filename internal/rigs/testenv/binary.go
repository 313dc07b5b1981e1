package testenv

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Binary returns the path of the farol program, built from the sources as they
// are now. Under -race it is built with the race detector too. The setting
// FAROL_TEST_BINARY names one that is ready.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("FAROL_TEST_BINARY"); path != "" {
		return path
	}
	return program(t, ".", "./cmd/farol")
}

// DevBinary returns the path of the farol-dev program. It lies beside that of
// [Binary], which is built too: each starts the other.
func DevBinary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("FAROL_TEST_BINARY"); path != "" {
		return filepath.Join(filepath.Dir(path), "farol-dev")
	}
	program(t, ".", "./cmd/farol")
	return program(t, "dev", "./farol-dev")
}

// program returns the path of a command, built.
func program(t testing.TB, module, pkg string) string {
	t.Helper()
	dir := "."
	if raceEnabled {
		dir = "race"
	}
	path, err := running.built(module, pkg, filepath.Join(dir, filepath.Base(pkg)), raceEnabled)
	must(t, err)
	return path
}

// Identifier is the command of a child that identifies formats. It is built without
// the race detector, under which it reads its thousands of signatures ten times as long.
func Identifier() ([]string, error) {
	path, err := stackd()
	return []string{path, "identify"}, err
}

// stackd is the path of the program that runs servers as its children.
func stackd() (string, error) {
	if path := running.stackd; path != "" {
		return path, nil
	}
	return running.built("dev", "./stackd", "stackd", false)
}

// built is build for the first who asks in this process. To see that all is up to
// date takes the go command most of a second, and the sources stay as they are.
func (e *environment) built(module, pkg, name string, race bool) (string, error) {
	e.mu.Lock()
	f := e.programs[name]
	if f == nil {
		f = sync.OnceValues(func() (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // most of it for a cold build
			defer cancel()
			return build(ctx, module, pkg, name, race)
		})
		e.programs[name] = f
	}
	e.mu.Unlock()
	return f()
}

// build compiles a command of a module, "." or "dev", into a directory that all test
// processes of this user share, one at a time; the later ones find it up to date.
func build(ctx context.Context, module, pkg, name string, race bool) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := buildDir(root)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o711); err != nil {
		return "", fmt.Errorf("make the build directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("lock the build: %w", err)
	}
	defer lock.Close() //nolint:errcheck // closing is all there is to unlocking
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the build: %w", err)
	}
	path := filepath.Join(dir, name)
	args := []string{"build", "-trimpath", "-o", path} // with it, a checkout elsewhere finds the same in the build cache
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = filepath.Join(root, module)
	if !race { // as it is built for production; the race detector needs cgo
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, output.String())
	}
	return path, nil
}

// buildDir is not in the home directory, where an ordinary user that a test of
// root's starts a program as could not reach it.
func buildDir(root string) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("farol-build-%s-%x", strconv.Itoa(os.Getuid()), sha256.Sum256([]byte(root)))[:40])
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the build directory: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("make the build directory: %w", err)
	}
	// Anyone may have made it in a shared place, and we are about to run
	// what is in it.
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a directory of ours alone: remove it", dir)
	}
	return dir, nil
}

// moduleRoot is the directory above the test's that has the program's module, with the module
// dev in it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "dev", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the module: there is no dev/go.mod above the test")
		}
		dir = parent
	}
}
