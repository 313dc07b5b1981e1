package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/retry"
)

// A store is one row of the table: a way to run an S3 service, and what its buckets are like.
type store struct {
	name, does string
	install    func(context.Context, *host) (program, error) // nil: it is there
	start      func(context.Context, *host, *rig.Servers) (rig.Store, string, error)
	postgres   func(context.Context, *host) (dir, version string, err error) // nil: the installed one
	versions   bool                                                          // all buckets keep versions
	locked     bool                                                          // preservation buckets lock objects for a day
}

func allStores() []store {
	minio := fromModule("github.com/minio/minio", ".")
	return []store{
		{name: "versitygw", does: "Versity S3 Gateway, which all tests use", start: startGateway},
		{name: "minio", does: "MinIO over HTTPS", install: minio, start: startMinIO(true)},
		{name: "minio-http", does: "MinIO over HTTP", install: minio, start: startMinIO(false)},
		{name: "minio-versioned", does: "MinIO, all buckets with versions", install: minio, start: startMinIO(true), versions: true},
		{name: "minio-locked", does: "MinIO, preservation buckets with Object Lock, COMPLIANCE 1 day", install: minio, start: startMinIO(true), locked: true},
		{name: "seaweedfs", does: "SeaweedFS", install: fromModule("github.com/seaweedfs/seaweedfs", "./weed"), start: startSeaweedFS},
		{name: "ceph", does: "Ceph RGW", install: fromDebian("ceph", "radosgw"), start: startCeph},
		{name: "swift", does: "OpenStack Swift with s3api", install: fromDebian("swift", "swift-proxy"), start: startSwift},
		{name: "postgres18", does: "PostgreSQL 18, on Versity S3 Gateway", start: startGateway, postgres: installPostgres18},
	}
}

// client sets up a depositor's client, which asks nothing of a store that old ones lack.
func (s store) client(o *s3.Options) {
	o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
}

// A program is an installed server.
type program struct{ path, version string }

// A host runs the servers of one store. They are started again if they end, and that is noted.
type host struct {
	dir, cache string
	build      rig.Build
	installed  program
	children   []*devstack.Process
}

// run starts a server whose log is in the host's directory.
func (h *host) run(name string, env map[string]string, command ...string) error {
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": h.dir, "LC_ALL": "C.UTF-8"}
	for k, v := range env {
		all[k] = v
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := &devstack.Process{
		Name: name, Binary: path, Args: command[1:], Env: all, Log: filepath.Join(h.dir, name+".log"), Dies: true, Ended: rig.NotStarted,
	}
	h.children = append(h.children, p)
	return p.Start()
}

// stop ends the servers, the last first, and returns what they did unasked.
func (h *host) stop() (notes []string) {
	for i := range h.children {
		p := h.children[len(h.children)-1-i]
		if exits := p.Unexpected(); len(exits) > 0 {
			notes = append(notes, fmt.Sprintf("%s ended by itself %d times, first with exit code %d", p.Name, len(exits), exits[0]))
		}
		p.Stop()
	}
	return notes
}

// tool runs a program to its end, and returns what it printed.
func tool(ctx context.Context, dir string, env []string, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s%s", strings.Join(command, " "), err, said.String(), out)
	}
	return strings.TrimSpace(string(out)), nil
}

const readiness = time.Minute // of a server to start

// await asks until the answer is right, or a server has ended.
func (h *host) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readiness)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, 5*time.Second)
		err := ask(one)
		done()
		if err == nil {
			return nil
		}
		for _, p := range h.children {
			if exits := p.Unexpected(); len(exits) > 0 {
				return fmt.Errorf("wait for %s: %s ended with exit code %d; see %s", what, p.Name, exits[0], p.Log)
			}
		}
		if !retry.Pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// answers asks a store for its buckets.
func answers(at rig.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := at.Client.ListBuckets(ctx, &s3.ListBucketsInput{}, func(o *s3.Options) { o.RetryMaxAttempts = 1 })
		return err
	}
}

// fromDebian installs what .ci/deps knows under a name, whose version is that of a package.
func fromDebian(name, pkg string) func(context.Context, *host) (program, error) {
	return func(ctx context.Context, _ *host) (program, error) {
		if _, err := tool(ctx, "..", nil, ".ci/deps", name); err != nil {
			return program{}, err
		}
		version, err := tool(ctx, "..", nil, "dpkg-query", "-W", "-f", "${Version}", pkg)
		return program{version: version}, err
	}
}

// fromModule builds a program from the newest version of a Go module. go install would
// refuse one whose go.mod replaces modules.
func fromModule(module, dir string) func(context.Context, *host) (program, error) {
	return func(ctx context.Context, h *host) (program, error) {
		out, err := tool(ctx, h.dir, nil, "go", "mod", "download", "-json", module+"@latest")
		var found struct{ Dir, Version string }
		if err = errors.Join(err, json.Unmarshal([]byte(out), &found)); err != nil {
			return program{}, fmt.Errorf("find the newest %s: %w", module, err)
		}
		p := program{path: filepath.Join(h.cache, filepath.Base(module)+"-"+found.Version), version: found.Version}
		if _, err := os.Stat(p.path); err == nil {
			return p, nil
		}
		if err := os.MkdirAll(h.cache, 0o755); err != nil { //nolint:gosec // there is no secret in it
			return p, fmt.Errorf("make the cache: %w", err)
		}
		fmt.Fprintf(os.Stderr, "  building %s %s, which takes minutes the first time\n", module, found.Version)
		if _, err := tool(ctx, found.Dir, []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath"}, "go", "build", "-o", p.path, dir); err != nil {
			return p, fmt.Errorf("build %s: %w", module, err)
		}
		return p, nil
	}
}
