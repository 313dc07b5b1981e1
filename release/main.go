// Command release makes what a version of Farol is published as, from a clean checkout:
//
//	go run . -version v1.2.3 -key ~/.ssh/release -out ../dist
//
// It writes programs for each system, packages with systemd units, an image, a list of
// what is linked in, checksums, and their signature. Two runs for one commit and version
// write the same bytes.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A release is one version of Farol, and where its files come from and go to.
type release struct {
	version string // such as v1.2.3
	src     string // root of the checkout
	out     string
	base    string // of the image: the folder of an OCI layout and a digest, or empty
	key     string // file of an SSH key that signs, or empty
	commit  string
	date    time.Time // of the commit, and so of every file that is written
	only    *regexp.Regexp
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.Error("no release", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version, such as v1.2.3; by default the tag of the commit")
	flags.StringVar(&r.src, "src", "..", "root of the checkout")
	flags.StringVar(&r.out, "out", "../dist", "folder to write, which must be empty or missing")
	flags.StringVar(&r.base, "base", "", "base of the image, FOLDER@sha256:DIGEST in an OCI layout; by default nothing but certificates")
	flags.StringVar(&r.key, "key", "", "file of the SSH key that signs the checksums")
	only := flags.String("only", "", "make only files that match this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if r.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // it is published
		return err
	}
	if old, err := os.ReadDir(r.out); err != nil || len(old) > 0 {
		return cmp.Or(err, fmt.Errorf("%s is not empty; move it away, or name another folder by -out", r.out))
	}
	for _, step := range []func(context.Context) error{r.programs, r.boms, r.packages, r.image, r.texts, r.sums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

var isVersion = regexp.MustCompile(`^v(\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?)$`)

// check finds the version and the commit, and refuses what could not be made again.
func (r *release) check(ctx context.Context) (err error) {
	if r.version == "" {
		if r.version, err = r.git(ctx, "describe", "--tags", "--exact-match"); err != nil {
			return fmt.Errorf("the commit has no tag: tag it, or give VERSION=v1.2.3: %w", err)
		}
	}
	if !isVersion.MatchString(r.version) {
		return fmt.Errorf("version %q must be like v1.2.3 or v1.2.3-rc.1", r.version)
	}
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the checkout has changes that no commit has; commit or remove them:\n%s", changed)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := r.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	r.date = time.Unix(at, 0).UTC()
	return errors.Join(err, r.described("CHANGELOG.md"), r.described("docs/upgrading.md"))
}

// described tells whether a page has a section of the version. Pre-releases are
// described by that of the version that they come before.
func (r *release) described(page string) error {
	text, err := os.ReadFile(filepath.Join(r.src, page))
	if err != nil {
		return err
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(r.version, "v"), "-")
	if !regexp.MustCompile(`(?m)^## \[?v?` + regexp.QuoteMeta(number) + `\b`).Match(text) {
		return fmt.Errorf("%s has no section ## [%s]; write what the version changes", page, number)
	}
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = r.src
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// path is where a file of the release is, with the version in its name.
func (r *release) path(form string, args ...any) string {
	return filepath.Join(r.out, "farol_"+strings.TrimPrefix(r.version, "v")+"_"+fmt.Sprintf(form, args...))
}

// wants tells whether a file is to be made.
func (r *release) wants(path string) bool { return r.only.MatchString(filepath.Base(path)) }
