package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/chaos/oracle"
)

// An institution deposits bags.
type institution struct{ Identifier, Receiving string }

// A site is one Farol: a database, buckets, bags, and the processes that work.
type site struct {
	*servers

	name         string // of the database, and the beginning of the buckets' names
	dir          string
	db           *pgxpool.Pool
	institutions []institution
	bags         []oracle.Bag
	workers      []*process
	scheduler    *process
	rng          *rand.Rand
	notes        []string                      // what the experiment has to say
	after        []func(context.Context) error // what ends with the experiment, the last first
}

// targets are the promised copies by storage option. There are more targets; the
// bags of experiments ask for these options.
func (s *site) targets() map[string][]oracle.Target {
	return map[string][]oracle.Target{
		"Standard":  {{Name: "Standard-VA", Bucket: s.bucket("standard-va")}, {Name: "Standard-OR", Bucket: s.bucket("standard-or")}},
		"Wasabi-OR": {{Name: "Wasabi-OR", Bucket: s.bucket("wasabi-or")}},
		"Wasabi-VA": {{Name: "Wasabi-VA", Bucket: s.bucket("wasabi-va")}},
	}
}

func (s *site) bucket(what string) string { return strings.ReplaceAll(s.name, "_", "-") + "-" + what }

func (s *site) staging() string { return s.bucket("staging") }

func (s *site) restoring() map[string]string {
	buckets := map[string]string{}
	for _, i := range s.institutions {
		buckets[i.Identifier] = s.bucket("out." + i.Identifier)
	}
	return buckets
}

func (s *site) receiving() (list []string) {
	for _, i := range s.institutions {
		list = append(list, i.Receiving)
	}
	return list
}

// targetNames are all the targets that there are, in small letters.
func targetNames() []string {
	return []string{
		"standard-va", "standard-or", "wasabi-va", "wasabi-or", "wasabi-tx", "glacier-va", "glacier-oh", "glacier-or",
		"glacier-deep-va", "glacier-deep-oh", "glacier-deep-or",
	}
}

// newSite makes a database, buckets and bags.
func newSite(ctx context.Context, srv *servers, name string, seed uint64, m mix) (*site, error) {
	s := &site{
		servers: srv, name: name, dir: filepath.Join(srv.dir, name),
		rng: rand.New(rand.NewPCG(seed, 2)), //nolint:gosec // the same each time
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("make the site's directory: %w", err)
	}
	if err := srv.redis.FlushAll(ctx).Err(); err != nil {
		return nil, fmt.Errorf("empty Redis: %w", err)
	}
	if err := s.createDatabase(ctx, name, template); err != nil {
		return nil, err
	}
	var err error
	if s.db, err = pgxpool.New(ctx, s.database(name)+"&application_name=make-chaos&pool_max_conns=6"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	buckets := []string{s.staging()}
	for _, t := range targetNames() {
		buckets = append(buckets, s.bucket(t))
	}
	for _, b := range buckets {
		if _, err := s.s3.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &b}); err != nil {
			return nil, fmt.Errorf("make bucket %s: %w", b, err)
		}
	}
	for _, identifier := range []string{"lighthouse.edu", "harbor.edu"} {
		in := institution{identifier, s.bucket("in." + identifier)}
		_, err := s.farol(ctx, s.env(nil), "institution", "add", identifier, "--name", "Institution "+identifier,
			"--receiving-bucket", in.Receiving, "--restore-bucket", s.bucket("out."+identifier), "--create-buckets")
		if err != nil {
			return nil, err
		}
		s.institutions = append(s.institutions, in)
	}
	s.bags, err = makeBags(filepath.Join(s.dir, "bags"), seed, m, s.institutions)
	return s, err
}

// env are the settings of a process, by its own ways to the servers. nil leads to
// the servers themselves.
func (s *site) env(p *process) map[string]string {
	env := map[string]string{
		"FAROL_DATABASE_URL": s.database(s.name), "FAROL_REDIS_URL": s.RedisURL,
		"FAROL_S3_ENDPOINT": s.S3Endpoint, "FAROL_S3_CA_FILE": s.S3CAFile,
		"AWS_ACCESS_KEY_ID": s.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s.SecretAccessKey, "AWS_REGION": s.Region,
		"FAROL_STAGING_BUCKET": s.staging(), "FAROL_READ_INTERVAL": "1s", "FAROL_GRACE": "2s",
		"FAROL_IDENTIFY_WORKERS": "1", "TMPDIR": filepath.Join(s.dir, "tmp"),
		// Copies in an archive class could not be read back by the oracle.
		"FAROL_TARGET_STANDARD_OR_STORAGE_CLASS": "STANDARD",
	}
	for _, t := range targetNames() {
		env["FAROL_TARGET_"+strings.ToUpper(strings.ReplaceAll(t, "-", "_"))+"_BUCKET"] = s.bucket(t)
	}
	if p != nil {
		redis, err := url.Parse(s.RedisURL)
		if err == nil {
			redis.Host = p.redis.addr
			env["FAROL_REDIS_URL"] = redis.String()
		}
		env["FAROL_DATABASE_URL"] = s.through(s.name, p.postgres.addr)
		env["FAROL_S3_ENDPOINT"], env["FAROL_S3_CA_FILE"] = "https://"+p.s3.addr, s.ca.file
	}
	return env
}

// process makes a process with proxies of its own, which does not run yet.
func (s *site) process(name string, args ...string) (*process, error) {
	p := &process{name: name, binary: s.binary, args: args, log: filepath.Join(s.dir, name+".log")}
	var err error
	for server, g := range map[string]**gate{hostOf(s.AdminURL): &p.postgres, hostOf(s.RedisURL): &p.redis} {
		if *g, err = newGate(); err != nil {
			return nil, err
		}
		(*g).forward(server)
	}
	if p.s3, err = newS3Proxy(s.gateway, s.trust, s.ca); err != nil {
		return nil, err
	}
	p.env = s.env(p)
	return p, nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// deposit uploads the bags, as depositors would.
func (s *site) deposit(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, b := range s.bags {
		g.Go(func() error {
			f, err := os.Open(filepath.Join(s.dir, "bags", b.Institution+"-"+b.Key))
			if err != nil {
				return fmt.Errorf("upload %s: %w", b.Key, err)
			}
			defer f.Close() //nolint:errcheck // only read
			if _, err := s.s3.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.Bucket, Key: &b.Key, Body: f}); err != nil {
				return fmt.Errorf("upload %s: %w", b.Key, err)
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // said above
}

// everyone is the workers and the scheduler.
func (s *site) everyone() []*process {
	list := append([]*process(nil), s.workers...)
	if s.scheduler != nil {
		list = append(list, s.scheduler)
	}
	return list
}

// stopProcesses ends all processes side by side.
func (s *site) stopProcesses() {
	var g errgroup.Group
	for _, p := range s.everyone() {
		g.Go(func() error { p.stop(); return nil })
	}
	g.Wait() //nolint:errcheck // none fails
}

// remove deletes what the site has in the servers, and its directory.
func (s *site) remove(ctx context.Context) error {
	s.db.Close()
	if err := s.dropDatabase(ctx, s.name); err != nil {
		return err
	}
	// The gateway keeps each bucket in a directory; to delete that is a thousand
	// times quicker than to delete each object.
	buckets := filepath.Join(s.servers.dir, "stack", "s3", "buckets")
	entries, err := os.ReadDir(buckets)
	if err != nil {
		return fmt.Errorf("remove the buckets: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), s.bucket("")) {
			if err := os.RemoveAll(filepath.Join(buckets, e.Name())); err != nil {
				return fmt.Errorf("remove the buckets: %w", err)
			}
		}
	}
	return os.RemoveAll(s.dir) //nolint:wrapcheck // it says what it could not remove
}

// exec runs a statement past all proxies.
func (s *site) exec(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := s.db.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
