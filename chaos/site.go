package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
	"github.com/farol-preservation/farol/internal/rigs/storeways"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// A site is one Farol with the processes that work.
type site struct {
	*rig.Site

	servers   *servers
	workers   []*process
	scheduler *process
	rng       *rand.Rand
	notes     []string                      // what the experiment has to say
	broken    []oracle.Violation            // promises that its script saw broken
	before    string                        // commit of the release before, as the command line says
	after     []func(context.Context) error // what ends with the experiment, the last first
	way       *storeways.Way                // that the store goes; nil: it does what the gateway does
}

// goes has the store go a way before all processes that are made from now on.
func (s *site) goes(name string) error {
	if name == "" {
		return nil
	}
	ways := storeways.All(s.AccessKeyID, s.SecretAccessKey)
	i := slices.IndexFunc(ways, func(w storeways.Way) bool { return w.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no store with %s", name)
	}
	s.way = &ways[i] // one for all processes: it remembers the uploads
	return nil
}

// newSite makes a database, buckets and bags.
func newSite(ctx context.Context, srv *servers, name string, seed uint64, m mix) (*site, error) {
	inner, err := rig.NewSite(ctx, srv.Servers, srv.store, name)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was making
	}
	s := &site{Site: inner, servers: srv, rng: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // the same each time
	buckets := []string{s.Staging()}
	for _, t := range rig.TargetNames() {
		buckets = append(buckets, s.TargetBucket(t))
	}
	for _, b := range buckets {
		if _, err := s.Store.Client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &b}); err != nil {
			return s, fmt.Errorf("make bucket %s: %w", b, err)
		}
	}
	if err := s.AddInstitutions(ctx, "--create-buckets"); err != nil {
		return s, err //nolint:wrapcheck // it says which
	}
	s.Bags, err = makeBags(s.bagsDir(), seed, m, s.Institutions)
	return s, err
}

// process makes a process with proxies of its own, which does not run yet.
func (s *site) process(name string, args ...string) (*process, error) {
	p := &process{Process: s.Process(name, args...)}
	var err error
	for server, way := range map[string]**injure.Proxy{hostOf(s.AdminURL): &p.postgres, hostOf(s.RedisURL): &p.redis} {
		if *way, err = injure.NewProxy(server); err != nil {
			return nil, err //nolint:wrapcheck // it says where it could not listen
		}
	}
	if p.s3, err = newS3Proxy(s.Store.Gateway, s.servers.ca); err != nil {
		return nil, err
	}
	if s.way != nil {
		p.s3.add(&rule{name: s.way.Name, answer: s.way.Request, change: s.way.Response})
	}
	redis, err := url.Parse(s.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("read the address of Redis: %w", err)
	}
	redis.Host = p.redis.Addr()
	p.Env["FAROL_REDIS_URL"], p.Env["FAROL_DATABASE_URL"] = redis.String(), rig.Through(s.AdminURL, s.Name, p.postgres.Addr())
	p.Env["FAROL_S3_ENDPOINT"], p.Env["FAROL_S3_CA_FILE"] = "https://"+p.s3.Addr(), s.servers.ca.File
	return p, nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// bagsDir is where the tars of the bags are.
func (s *site) bagsDir() string { return filepath.Join(s.Dir, "bags") }

// part is the bags of one of n parts, counted from 0.
func (s *site) part(i, n int) []oracle.Bag {
	return s.Bags[i*len(s.Bags)/n : (i+1)*len(s.Bags)/n]
}

// deposit uploads bags, as depositors would.
func (s *site) deposit(ctx context.Context, bags []oracle.Bag) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, b := range bags {
		g.Go(func() error { return s.Upload(ctx, s.bagsDir(), b) })
	}
	return g.Wait() //nolint:wrapcheck // it says which
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
	// The gateway keeps each bucket in a directory; to delete that is a thousand
	// times quicker than to delete each object.
	buckets := filepath.Dir(s.bucketDir(""))
	entries, err := os.ReadDir(buckets)
	if err != nil {
		return fmt.Errorf("remove the buckets: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), s.Bucket("")) {
			if err := os.RemoveAll(filepath.Join(buckets, e.Name())); err != nil {
				return fmt.Errorf("remove the buckets: %w", err)
			}
		}
	}
	return s.Remove(ctx) //nolint:wrapcheck // it says what it could not remove
}

// A process is a farol process with its own ways to the servers, so that it alone can be
// harmed.
type process struct {
	*devstack.Process

	postgres, redis *injure.Proxy
	s3              *s3Proxy
}

// stop ends the process and its ways.
func (p *process) stop() {
	p.Stop()
	for _, way := range []*injure.Proxy{p.postgres, p.redis} {
		if way != nil {
			way.Close()
		}
	}
	if p.s3 != nil {
		p.s3.stop()
	}
}

// servers are what all experiments share. Each experiment has a database and buckets of
// its own in them.
type servers struct {
	*rig.Servers

	store rig.Store      // the gateway
	ca    *rig.Authority // of the S3 proxies
}

// startServers builds farol and starts the servers in dir.
func startServers(ctx context.Context, dir string) (_ *servers, err error) {
	build, err := rig.NewBuild(ctx, dir)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was building
	}
	inner, err := rig.Start(ctx, dir, build, "")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was starting
	}
	s := &servers{Servers: inner, store: rig.Store{Gateway: inner.Gateway()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}()
	if err := s.store.Connect(); err != nil {
		return nil, err //nolint:wrapcheck // it says what it could not read
	}
	s.ca, err = rig.NewAuthority(dir)
	return s, err //nolint:wrapcheck // it says what it could not make
}

// mix says what bags an experiment deposits.
type mix struct {
	Bags  int
	Large int // of Bags: 24 MiB in one file
	Many  int // of Bags: many files
	Files int // of each of those; 0: 300
}

const invalidEach = 10 // one bag in so many is invalid, in the ways of rig.Flaws in rotation

// makeBags writes the tars of a mix to dir and has the oracle read them. The same
// seed makes the same bags.
func makeBags(dir string, seed uint64, m mix, institutions []rig.Institution) ([]oracle.Bag, error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the bags' directory: %w", err)
	}
	var bags []oracle.Bag
	for i := range m.Bags {
		option := []string{"Standard", "Standard", "Standard", "Wasabi-OR", "Standard", "Wasabi-VA"}[i%6]
		d := rig.Draft{Spec: bagtest.Spec{Name: fmt.Sprintf("bag-%04d", i), StorageOption: option}}
		add := func(path string, size int) {
			d.Files = append(d.Files, bagtest.File{Path: path, Size: int64(size), Seed: rng.Uint64()})
		}
		switch {
		case i < m.Large:
			add("data/film.mov", 24<<20)
		case i < m.Large+m.Many:
			for n := range cmp.Or(m.Files, 300) {
				add(fmt.Sprintf("data/pages/%02d/page-%05d.txt", n%7, n), 200+rng.IntN(2000))
			}
		default:
			for n := range 2 + rng.IntN(3) {
				add(fmt.Sprintf("data/file-%d.bin", n), 100+rng.IntN(20_000))
			}
			if i%invalidEach == invalidEach/2 {
				d.Flaw = rig.Flaws()[i/invalidEach%len(rig.Flaws())]
			}
		}
		if i%3 == 0 {
			d.Files = append(d.Files, bagtest.File{Path: "custom/notes.txt", Content: "Kept by: hand\n"})
		}
		bag, err := d.Bag(dir, institutions[i%len(institutions)])
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the bag
		}
		bags = append(bags, bag)
	}
	return bags, nil
}
