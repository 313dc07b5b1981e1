package rig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
	"github.com/farol-preservation/farol/retry"
)

// An Institution deposits bags.
type Institution struct{ Identifier, Receiving string }

// A Site is one Farol: a database, buckets in one store, and bags.
type Site struct {
	*Servers

	Name         string // of the database, and the beginning of the buckets' names
	Dir          string
	Store        Store
	DB           *pgxpool.Pool
	Institutions []Institution
	Bags         []oracle.Bag
	Settings     map[string]string // of all processes, over those that all sites have
}

// NewSite makes a database and empties Redis. It makes no buckets.
func NewSite(ctx context.Context, srv *Servers, store Store, name string) (*Site, error) {
	s := &Site{Servers: srv, Store: store, Name: name, Dir: filepath.Join(srv.Dir, name)}
	if err := os.MkdirAll(filepath.Join(s.Dir, "tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("make the site's directory: %w", err)
	}
	err := srv.Redis.FlushAll(ctx).Err()
	for tries := 0; err != nil && strings.HasPrefix(err.Error(), "LOADING") && tries < 30 && retry.Pause(ctx, time.Second); tries++ {
		err = srv.Redis.FlushAll(ctx).Err() // it was killed, and is starting
	}
	if err != nil {
		return nil, fmt.Errorf("empty Redis: %w", err)
	}
	if err := s.createDatabase(ctx, name, template); err != nil {
		return nil, err
	}
	if err := s.LookAt(ctx, s.AdminURL, ""); err != nil {
		return nil, err
	}
	for _, identifier := range []string{"lighthouse.edu", "harbor.edu"} {
		s.Institutions = append(s.Institutions, Institution{identifier, s.Bucket("in." + identifier)})
	}
	return s, nil
}

// LookAt has this program read the site's database on a server from now on, by way of addr unless
// that is "".
func (s *Site) LookAt(ctx context.Context, server, addr string) (err error) {
	if s.DB != nil {
		s.DB.Close()
	}
	s.DB, err = pgxpool.New(ctx, Through(server, s.Name, addr)+"&application_name=make-chaos&pool_max_conns=6")
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return nil
}

// AddInstitutions registers the institutions, with more flags of farol institution add.
func (s *Site) AddInstitutions(ctx context.Context, more ...string) error {
	for _, in := range s.Institutions {
		args := []string{
			"institution", "add", in.Identifier, "--name", "Institution " + in.Identifier,
			"--receiving-bucket", in.Receiving, "--restore-bucket", s.Restoring()[in.Identifier],
		}
		if _, err := s.Farol(ctx, s.Env(), append(args, more...)...); err != nil {
			return err
		}
	}
	return nil
}

// Bucket is the name of a bucket of the site.
func (s *Site) Bucket(what string) string { return strings.ReplaceAll(s.Name, "_", "-") + "-" + what }

// Staging is the staging bucket.
func (s *Site) Staging() string { return s.Bucket("staging") }

// Restoring are the restoration buckets by institution.
func (s *Site) Restoring() map[string]string {
	buckets := map[string]string{}
	for _, i := range s.Institutions {
		buckets[i.Identifier] = s.Bucket("out." + i.Identifier)
	}
	return buckets
}

// Receiving are the receiving buckets.
func (s *Site) Receiving() (list []string) {
	for _, i := range s.Institutions {
		list = append(list, i.Receiving)
	}
	return list
}

// TargetNames are all the targets that there are.
func TargetNames() []string {
	return []string{
		"Standard-VA", "Standard-OR", "Wasabi-VA", "Wasabi-OR", "Wasabi-TX", "Glacier-VA", "Glacier-OH", "Glacier-OR",
		"Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR",
	}
}

// TargetBucket is the bucket of a target.
func (s *Site) TargetBucket(target string) string { return s.Bucket(strings.ToLower(target)) }

// Targets are the promised copies by storage option.
func (s *Site) Targets() map[string][]oracle.Target {
	targets := map[string][]oracle.Target{}
	for _, name := range TargetNames() {
		option := name
		if strings.HasPrefix(name, "Standard") {
			option = "Standard"
		}
		targets[option] = append(targets[option], oracle.Target{Name: name, Bucket: s.TargetBucket(name)})
	}
	return targets
}

// Env are the settings of a process that uses the servers themselves.
func (s *Site) Env() map[string]string {
	env := map[string]string{
		"FAROL_DATABASE_URL": s.Database(s.Name), "FAROL_REDIS_URL": s.RedisURL, "FAROL_S3_ENDPOINT": s.Store.Endpoint,
		"AWS_ACCESS_KEY_ID": s.Store.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s.Store.SecretAccessKey, "AWS_REGION": s.Store.Region,
		"FAROL_STAGING_BUCKET": s.Staging(), "FAROL_READ_INTERVAL": "1s", "FAROL_GRACE": "2s",
		"PATH": os.Getenv("PATH"), "FAROL_IDENTIFY_WORKERS": "1", "TMPDIR": filepath.Join(s.Dir, "tmp"),
		// Copies in an archive class could not be read back by the oracle.
		"FAROL_TARGET_STANDARD_OR_STORAGE_CLASS": "STANDARD",
	}
	if s.Store.CAFile != "" {
		env["FAROL_S3_CA_FILE"] = s.Store.CAFile
	}
	for _, t := range TargetNames() {
		env[Setting(t, "BUCKET")] = s.TargetBucket(t)
	}
	maps.Copy(env, s.Settings)
	return env
}

// Setting is the name of a setting of a target.
func Setting(target, what string) string {
	return "FAROL_TARGET_" + strings.ToUpper(strings.ReplaceAll(target, "-", "_")) + "_" + what
}

// NotStarted says why a process is not started again. What else ends one is intended.
func NotStarted(err error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Process makes a process of farol, which does not run yet.
func (s *Site) Process(name string, args ...string) *devstack.Process {
	return &devstack.Process{
		Name: name, Binary: s.Binary, Args: args, Log: filepath.Join(s.Dir, name+".log"), Env: s.Env(), Dies: true, Ended: NotStarted,
	}
}

// Upload uploads a bag in one request. Its tar is in dir, where [Draft.Bag] has put it.
func (s *Site) Upload(ctx context.Context, dir string, b oracle.Bag) error {
	f, err := os.Open(filepath.Join(dir, b.Institution+"-"+b.Key))
	if err != nil {
		return fmt.Errorf("upload %s: %w", b.Key, err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := s.Store.Client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.Bucket, Key: &b.Key, Body: f}); err != nil {
		return fmt.Errorf("upload %s: %w", b.Key, err)
	}
	return nil
}

// Valid are the first n bags that are not invalid.
func (s *Site) Valid(n int) (list []oracle.Bag) {
	for _, b := range s.Bags {
		if b.Wrong == "" && len(list) < n {
			list = append(list, b)
		}
	}
	return list
}

// Counts is how far the work is: stages that are done, and items that are live or have ended.
type Counts struct{ Done, Live, Ended int }

// Look reads how far the work is.
func (s *Site) Look(ctx context.Context) (c Counts, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = s.DB.QueryRow(ctx, `SELECT (SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'),
		count(*) FILTER (WHERE retry), count(*) FILTER (WHERE NOT retry) FROM work_items`).Scan(&c.Done, &c.Live, &c.Ended)
	if err != nil {
		return c, fmt.Errorf("read the queue: %w", err)
	}
	return c, nil
}

// Collect has the oracle read all that there is, for five minutes at most.
func (s *Site) Collect(ctx context.Context) (oracle.World, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return oracle.Collect(ctx, oracle.Sources{ //nolint:wrapcheck // it says what it was reading
		DB: s.DB, S3: s.Store.Client, Bags: s.Bags, Targets: s.Targets(), Staging: s.Staging(), Receiving: s.Receiving(), Restoring: s.Restoring(),
	})
}

// AddPeople registers two for each institution, who may delete at once what is in it.
func (s *Site) AddPeople(ctx context.Context) error {
	for _, in := range s.Institutions {
		for _, who := range []string{"first@", "second@"} {
			if _, err := s.Farol(ctx, s.Env(), "user", "add", who+in.Identifier, "--name", "A Person", "--role", "institutional_admin", "--institution", in.Identifier); err != nil {
				return err
			}
		}
	}
	for _, sql := range []string{
		`UPDATE users SET created_at = created_at - interval '1 year'`,
		`UPDATE intellectual_objects SET created_at = created_at - interval '1 year'`, // the time for which it has to stay
		`UPDATE generic_files SET created_at = created_at - interval '1 year'`,
		`UPDATE request_settings SET deletion_wait = '0'`,
	} {
		if err := s.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Delete has two people of [Site.AddPeople] delete an object, and returns the request's ID.
func (s *Site) Delete(ctx context.Context, b oracle.Bag) (request int64, err error) {
	if _, err := s.Farol(ctx, s.Env(), "delete", "request", b.Object(), "--by", "first@"+b.Institution); err != nil {
		return 0, err
	}
	if err := s.DB.QueryRow(ctx, `SELECT max(id) FROM deletion_requests`).Scan(&request); err != nil {
		return 0, fmt.Errorf("find the request: %w", err)
	}
	_, err = s.Farol(ctx, s.Env(), "delete", "approve", fmt.Sprint(request), "--by", "second@"+b.Institution, "--on-paper", "make chaos")
	return request, err
}

// Exec runs a statement past all proxies.
func (s *Site) Exec(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := s.DB.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// Remove deletes the database and the directory. The buckets stay.
func (s *Site) Remove(ctx context.Context) error {
	s.DB.Close()
	if err := s.Admin(ctx, fmt.Sprintf(`DROP DATABASE IF EXISTS %s WITH (FORCE)`, s.Name)); err != nil {
		return err
	}
	return os.RemoveAll(s.Dir) //nolint:wrapcheck // it says what it could not remove
}

// Buckets are all buckets that the settings and the institutions name.
func (s *Site) Buckets() []string {
	buckets := []string{s.Staging()}
	for _, t := range TargetNames() {
		buckets = append(buckets, s.TargetBucket(t))
	}
	return slices.Concat(buckets, s.Receiving(), slices.Collect(maps.Values(s.Restoring())))
}

// A Store is an S3 service and the keys to it.
type Store struct {
	devstack.Gateway

	Client *s3.Client // of a depositor
}

// Connect sets Client.
func (s *Store) Connect(options ...func(*s3.Options)) error {
	transport, err := s.Transport()
	if err != nil {
		return err //nolint:wrapcheck // it says what it could not read
	}
	s.Client = s.Gateway.Client(transport, append(options, func(o *s3.Options) { o.HTTPClient = &http.Client{Timeout: time.Minute, Transport: transport} })...)
	return nil
}

// An Authority has signed the certificate that servers on loopback show.
type Authority struct {
	File              string // PEM, which clients trust
	CertFile, KeyFile string // PEM, of the servers
	Cert              tls.Certificate
}

// NewAuthority makes one in dir. The certificate is public.crt there, and its key private.key.
func NewAuthority(dir string) (*Authority, error) {
	a := &Authority{File: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "public.crt"), KeyFile: filepath.Join(dir, "private.key")}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = devstack.MakeCertificates(a.File, a.CertFile, a.KeyFile)
	}
	if err == nil {
		a.Cert, err = tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return a, nil
}
