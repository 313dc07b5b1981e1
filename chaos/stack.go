package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/devstack"
)

// servers are what all experiments share: real servers on loopback ports. Each
// experiment has a database and buckets of its own in them.
type servers struct {
	*devstack.Stack

	dir     string
	binary  string
	version string // commit that the binary was built from
	trust   *x509.CertPool
	gateway *url.URL
	ca      *authority
	s3      *s3.Client
	redis   *redis.Client
}

const template = "chaos_template"

// startServers builds farol, starts the servers in dir and makes the database that
// those of the experiments are copied from.
func startServers(ctx context.Context, dir string) (_ *servers, err error) {
	s := &servers{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx))
		}
	}()
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	s.Stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "stack"), Executable: s.binary + "-dev", Only: []devstack.Service{devstack.Postgres, devstack.Redis, devstack.S3},
		// Processes are killed here, never the machine: what the kernel has is safe.
		PostgresSettings: []string{"fsync=off", "full_page_writes=off", "jit=off"},
	})
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	if s.ca, err = newAuthority(dir); err != nil {
		return nil, err
	}
	if err := s.createDatabase(ctx, template, "template0"); err != nil {
		return nil, err
	}
	_, err = s.farol(ctx, map[string]string{"FAROL_DATABASE_URL": s.database(template)}, "migrate", "up")
	return s, err
}

// build builds the program from the sources around us, and next to it farol-dev,
// which runs servers.
func (s *servers) build(ctx context.Context) error {
	s.binary = filepath.Join(s.dir, "farol")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.dir+"/", "./cmd/farol", "./cmd/farol-dev")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0") // the program's own module pins its libraries
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build farol; run this in the folder chaos: %w\n%s", err, out)
	}
	describe := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	describe.Dir = ".."
	out, err := describe.Output()
	if err != nil {
		out = []byte("unknown")
	}
	s.version = strings.TrimSpace(string(out))
	return nil
}

func (s *servers) connect() error {
	pem, err := os.ReadFile(s.S3CAFile)
	if err != nil {
		return fmt.Errorf("read the gateway's authority: %w", err)
	}
	s.trust = x509.NewCertPool()
	if !s.trust.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", s.S3CAFile)
	}
	if s.gateway, err = url.Parse(s.S3Endpoint); err != nil {
		return fmt.Errorf("read the gateway's address: %w", err)
	}
	s.s3 = s3.New(s3.Options{
		BaseEndpoint: &s.S3Endpoint, Region: s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, ""),
		HTTPClient: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: s.trust, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 32,
		}},
	})
	options, err := redis.ParseURL(s.RedisURL)
	if err != nil {
		return fmt.Errorf("read the address of Redis: %w", err)
	}
	s.redis = redis.NewClient(options)
	return nil
}

// database is the URL of a database, past all proxies.
func (s *servers) database(name string) string { return s.through(name, "") }

// through is the URL of a database by way of a proxy.
func (s *servers) through(name, addr string) string { return throughTo(s.AdminURL, name, addr) }

func throughTo(server, name, addr string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // which then is refused
	}
	u.Path = "/" + name
	if addr != "" {
		u.Host = addr
	}
	return u.String()
}

func (s *servers) createDatabase(ctx context.Context, name, from string) error {
	return s.admin(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s`, name, from))
}

func (s *servers) dropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, fmt.Sprintf(`DROP DATABASE IF EXISTS %s WITH (FORCE)`, name))
}

func (s *servers) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.AdminURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is left to say
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// farol runs a command to its end.
func (s *servers) farol(ctx context.Context, env map[string]string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("farol %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// stop ends the servers. Their data stays.
func (s *servers) stop(ctx context.Context) error {
	if s.redis != nil {
		s.redis.Close() //nolint:errcheck // nothing is left to say
	}
	if s.Stack == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	return s.Stack.Stop(ctx) //nolint:wrapcheck // it says what it stopped
}
