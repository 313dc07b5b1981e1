package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// Database is the connection to PostgreSQL.
type Database struct {
	URL    storage.Secret `env:"FAROL_DATABASE_URL,required,notEmpty" is:"a PostgreSQL URL such as postgres://user:password@host:5432/farol" doc:"PostgreSQL database of the registry and the queue. Of several hosts (host:5432,other:5432), the one that accepts writes is used"`
	Pooler string         `env:"FAROL_DATABASE_POOLER" is:"transaction or prepared" oneof:"transaction prepared" doc:"Mode of the connection pooler that the URL leads to, if any. prepared is transaction mode in which the pooler keeps prepared statements: PgBouncer from 1.21 with max_prepared_statements"`
	Direct storage.Secret `env:"FAROL_DATABASE_DIRECT_URL" is:"a PostgreSQL URL such as postgres://user:password@host:5432/farol" doc:"Direct PostgreSQL URL that bypasses the pooler. farol work uses it for LISTEN; farol mirror and farol migrate use only it"`
	Person string         `env:"FAROL_USER" is:"a name or an e-mail address of up to 40 printable ASCII characters" doc:"Person who runs the command, recorded with the database role for every change by hand. Defaults to the user of the operating system"`
	Agents string         `env:"FAROL_EVENT_AGENTS" envDefault:"farol" is:"farol or aptrust" oneof:"farol aptrust" doc:"Software named in PREMIS events: farol names this program, its version and its storage library; aptrust uses the wording of APTrust"`

	urlFile, directFile file
}

// CurrentURL is that of a connection that is to be made now: its user and password may have been replaced.
func (c Database) CurrentURL() string { return c.urlFile.now(c.URL) }

// CurrentDirect is likewise that of a connection that bypasses the pooler.
func (c Database) CurrentDirect() string { return c.directFile.now(c.Direct) }

// check reads the URLs as their libraries do.
func (c *Database) check(s *reader) {
	s.readPerson(c)
	c.urlFile, c.directFile = s.file("FAROL_DATABASE_URL"), s.file("FAROL_DATABASE_DIRECT_URL")
	for _, f := range []struct {
		url             storage.Secret
		name, fieldName string
	}{{c.URL, "FAROL_DATABASE_URL", "URL"}, {c.Direct, "FAROL_DATABASE_DIRECT_URL", "Direct"}} {
		if _, err := pgxpool.ParseConfig(string(f.url)); err != nil && c.URL != "" && f.url != "" {
			s.wrong(f.name, "cannot be read; it must be "+allowed(c, f.fieldName)) // what the parser says may hold the password, or a part of it
		}
	}
}

// Session is the connection to PostgreSQL of a command that holds locks in its session: its URL is
// the one that leads to the database itself.
type Session struct{ Database }

func (c *Session) check(s *reader) {
	switch {
	case c.Direct != "":
		c.URL, c.urlFile = c.Direct, c.directFile
	case c.Pooler != "":
		s.wrong("FAROL_DATABASE_DIRECT_URL", "is not set; this command needs a session of its own, which a pooler does not provide: it must be "+allowed(&c.Database, "Direct"))
	}
	c.Pooler = ""
}

// Redis is the connection to Redis.
type Redis struct {
	URL storage.Secret `env:"FAROL_REDIS_URL,required,notEmpty" is:"a Redis URL such as redis://:password@host:6379/0" doc:"Redis database for the progress of items"`

	file file
}

// CurrentURL is that of a connection that is to be made now: its user and password may have been replaced.
func (c Redis) CurrentURL() string { return c.file.now(c.URL) }

func (c *Redis) check(s *reader) {
	c.file = s.file("FAROL_REDIS_URL")
	if _, err := progress.ParseURL(string(c.URL)); err != nil && c.URL != "" {
		s.wrong("FAROL_REDIS_URL", strings.TrimPrefix(err.Error(), "the Redis URL ")+"; it must be "+allowed(c, "URL"))
	}
}

// NSQ is where nsqd is, and whether its orders count.
type NSQ struct {
	TCPAddr     string `env:"FAROL_NSQD_TCP_ADDR" is:"host:port" doc:"TCP address of nsqd, for publishing. Required unless FAROL_NSQLOOKUPD_HTTP_ADDR is set"`
	HTTPAddr    string `env:"FAROL_NSQD_HTTP_ADDR" is:"host:port" doc:"HTTP address of nsqd. Without it the mirror only publishes: nsqd does not show the queue, and nothing is read from it"`
	LookupdAddr string `env:"FAROL_NSQLOOKUPD_HTTP_ADDR" is:"host:port" doc:"HTTP address of nsqlookupd, which knows both addresses of nsqd. Use it instead of them"`
	Orders      string `env:"FAROL_NSQ_ORDERS" envDefault:"on" is:"on or off" oneof:"on off" doc:"Obey pauses in NSQ, and messages that other programs publish on the pipeline's topics. With off, nsqd only shows the queue"`
}

// Log is what is logged, and how.
type Log struct {
	Level  string `env:"FAROL_LOG_LEVEL" envDefault:"info" is:"debug, info, warn or error" oneof:"debug info warn error" doc:"Lowest level that is logged to standard error"`
	Format string `env:"FAROL_LOG_FORMAT" envDefault:"text" is:"text or json" oneof:"text json" doc:"Format of the log"`
}

// HTTP is where metrics and health are served.
type HTTP struct {
	Addr string `env:"FAROL_HTTP_ADDR" is:"host:port" doc:"Address of the metrics and health endpoints (/metrics, /healthz, /readyz), such as 127.0.0.1:9090. Not served if empty"`
}

// Pull is where and how the pull API is served.
type Pull struct {
	Addr    string `env:"FAROL_PULL_ADDR" envDefault:"127.0.0.1:4180" is:"host:port" doc:"Address of the pull API. On any address but a loopback one, every request needs a token"`
	MaxBody Size   `env:"FAROL_PULL_MAX_BODY" envDefault:"4MiB" min:"1048576" doc:"Largest request, and so about the largest message"`

	Timeout     time.Duration `env:"FAROL_PULL_TIMEOUT" envDefault:"60s" min:"0" doc:"Default time that a pull waits for messages"`
	Max         int           `env:"FAROL_PULL_MAX" envDefault:"1" min:"1" doc:"Default limit of messages of each queue in one pull"`
	RetryNum    int           `env:"FAROL_PULL_RETRY_NUM" envDefault:"2" min:"0" doc:"Default number of redeliveries of an unanswered message"`
	FailTimeout time.Duration `env:"FAROL_PULL_FAIL_TIMEOUT" envDefault:"2m" min:"0" doc:"Default time after which an unanswered message is redelivered"`
}

// Read is how often the receiving buckets are scanned, and what brings a scan forward.
type Read struct {
	Interval time.Duration  `env:"FAROL_READ_INTERVAL" old:"INGEST_BUCKET_READER_INTERVAL" envDefault:"60s" min:"0" doc:"Time between two scans of the receiving buckets; 0 disables them"`
	QueueURL string         `env:"FAROL_READ_QUEUE_URL" is:"an http(s) URL" doc:"Queue of SQS with S3 events. The bucket that one names is scanned at once. Requests are signed with the credentials of the receiving buckets"`
	Token    storage.Secret `env:"FAROL_READ_TOKEN" is:"a token of at least 16 characters" doc:"Bearer token with which S3 events may be posted to /arrivals of FAROL_HTTP_ADDR. Not served if empty"`

	tokenFile file
}

// CurrentToken is the token that counts now.
func (c Read) CurrentToken() string { return c.tokenFile.now(c.Token) }

func (c *Read) check(s *reader) {
	c.tokenFile = s.file("FAROL_READ_TOKEN")
	if n := len(c.Token); n > 0 && n < 16 {
		s.wrong("FAROL_READ_TOKEN", fmt.Sprintf("has %d characters; it must be %s", n, allowed(c, "Token")))
	}
}

// Work is how a worker process works the queue.
type Work struct {
	Lease     time.Duration `env:"FAROL_LEASE" min:"0" doc:"Lease of a claim in every stage, at least three heartbeats: a dead worker is detected when it expires. 0 uses the lease in stage_settings (30s by default)"`
	Heartbeat time.Duration `env:"FAROL_HEARTBEAT" min:"0" doc:"Time between two renewals of the leases of a process. 0 uses the heartbeat in stage_settings (10s by default)"`
	Poll      time.Duration `env:"FAROL_POLL" envDefault:"2s" doc:"Time between two polls of a queue without notifications"`
	Archive   time.Duration `env:"FAROL_ARCHIVE_AFTER" envDefault:"720h" min:"0" doc:"Age at which finished items move from the queue's table to its archive; 0 keeps them in the table"`
	Grace     time.Duration `env:"FAROL_GRACE" envDefault:"20s" min:"0" doc:"Time that running stages get to finish after SIGTERM before their items return to the queue"`
	ColdPoll  time.Duration `env:"FAROL_COLD_POLL" min:"0" doc:"Time between two polls of an object that an archive class is restoring. 0 uses the poll in retrieval_prices, some hours"`
	Files     int           `env:"FAROL_FILES" envDefault:"8" min:"1" doc:"Number of files of one bag that are processed at once"`
	Verify    string        `env:"FAROL_VERIFY" envDefault:"head" is:"head or read" oneof:"head read" doc:"Method of Storage Validation: head compares the provider's report of each new copy; read also reads it back, except in archive classes, and compares its SHA-256"`
}

// Identify limits the processes that identify file formats.
type Identify struct {
	Workers int  `env:"FAROL_IDENTIFY_WORKERS" envDefault:"2" min:"1" doc:"Number of child processes that identify file formats"`
	Memory  Size `env:"FAROL_IDENTIFY_MEMORY" envDefault:"256MiB" min:"67108864" doc:"Memory limit of each of these processes"`

	Signatures string `env:"FAROL_SIGNATURES" is:"the path of a file" doc:"Signature file of siegfried (.sig, as roy builds it) that formats are identified by. Without it the program's own"`
}

// Virus is the virus scanner.
type Virus struct {
	Clamd   string `env:"FAROL_CLAMD" is:"tcp://host:port or unix:///path" doc:"ClamAV daemon that scans the files of bags for viruses. Without it files are not scanned"`
	MaxSize Size   `env:"FAROL_CLAMD_MAX_SIZE" envDefault:"100MiB" min:"1" doc:"Largest file that is scanned as a whole: the smallest of the daemon's StreamMaxLength, MaxFileSize and MaxScanSize. Larger files are recorded as not scanned"`

	Scanner *virus.Scanner // nil: files are not scanned
}

// check makes the virus scanner, if there is to be one.
func (c *Virus) check(s *reader) {
	if c.Clamd == "" {
		return
	}
	var err error
	if c.Scanner, err = virus.New(c.Clamd, virus.Options{MaxSize: int64(c.MaxSize)}); err != nil {
		s.wrong("FAROL_CLAMD", fmt.Sprintf("is %q: %v; it must be %s", c.Clamd, err, allowed(c, "Clamd")))
	}
}

// Janitor says what the janitor removes, and when.
type Janitor struct {
	Retention time.Duration `env:"FAROL_RETENTION" envDefault:"336h" doc:"Retention of refused bags in their receiving bucket, and of the staging objects and Redis keys of failed and suspended items (336h are 14 days)"`
	OrphanAge time.Duration `env:"FAROL_ORPHAN_AGE" envDefault:"24h" doc:"Age from which an upload or a copy without a record counts as an orphan; younger ones may belong to a running stage"`
	Interval  time.Duration `env:"FAROL_JANITOR_INTERVAL" envDefault:"15m" min:"0" doc:"Time between two rounds of the janitor; 0 disables them"`
}

// Worker is all that farol work reads.
type Worker struct {
	Work
	Fixity   Fixity
	Database Database
	Redis    Redis
	Storage  Storage
	Repair   Repair
	Log      Log
	Traces   Traces
	HTTP     HTTP
	Identify Identify
	Virus    Virus
	Profiles Profiles
	Bags
	Pools   Pools
	ScaleIn ScaleIn

	// By stage, and only for stages that someone has set, but for the second: items
	// of it at once in this process, items of it in one claim, attempts before it is
	// given up, how long it may take, and how long a claim lasts unless renewed.
	StageSlots, ClaimCeiling, MaxAttempts map[string]int
	Timeouts, Leases                      map[string]time.Duration

	Idle []string // settings that are right and have no effect
}

// Deletes reports whether a part of the work deletes in targets: Delete what was asked for, Cleanup copies
// that were replaced.
func (c *Worker) Deletes() bool {
	return len(c.Pools.List) == 0 || slices.ContainsFunc(c.Pools.List, func(p pipeline.Pool) bool {
		return slices.Contains(p.Stages, string(registry.Delete)) || slices.Contains(p.Stages, string(registry.Cleanup))
	})
}

func (c *Worker) check(s *reader) {
	s.quarantined(c.Repair, c.Storage)
	s.readWorkers(c)
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Poll = c.Lease, c.Heartbeat, c.Poll
	if err := o.Validate(); err != nil && !s.has("FAROL_LEASE", "FAROL_HEARTBEAT") {
		s.wrong("FAROL_LEASE", "and FAROL_HEARTBEAT do not fit: "+err.Error())
	}
}

// Backfill is what farol identify reads.
type Backfill struct {
	Database Database
	Storage  Storage
	Identify Identify
}

// Stores is what farol janitor and farol doctor read.
type Stores struct {
	Database Database
	Redis    Redis
	Storage  Storage
	Log      Log
	Janitor  Janitor
	Profiles Profiles
}

// BucketReader is what farol read-buckets reads.
type BucketReader struct {
	Database Database
	S3       S3
	Log      Log
	Traces   Traces
	HTTP     HTTP
	Read     Read
}

// Mirror is what farol mirror reads.
type Mirror struct {
	Session
	NSQ    NSQ
	Fixity Fixity
	Log    Log
	Traces Traces
	HTTP   HTTP
}

func (c *Mirror) check(s *reader) {
	switch {
	case c.NSQ.LookupdAddr == "" && c.NSQ.TCPAddr == "":
		s.wrong("FAROL_NSQD_TCP_ADDR", "is not set; it must be "+allowed(&c.NSQ, "TCPAddr")+", or FAROL_NSQLOOKUPD_HTTP_ADDR be set instead")
	case c.NSQ.LookupdAddr != "" && c.NSQ.TCPAddr+c.NSQ.HTTPAddr != "":
		s.wrong("FAROL_NSQLOOKUPD_HTTP_ADDR", "is set, and so are addresses of nsqd; set only one of them")
	}
}

// API is what the operations of the REST API need: of a server for people, and of a command that
// answers itself.
type API struct {
	Fixity  Fixity
	NSQ     NSQ
	Web     Web
	Classes Classes
}

// Operator is what commands read that work with the registry itself.
type Operator struct {
	Database Database
	API
}

// Server is what farol serve reads.
type Server struct {
	Database Database
	Pull     Pull
	Log      Log
	Traces   Traces
	HTTP     HTTP
	*API     // of a server for people; nil: it is for programs only
}

func (c *Server) check(s *reader) {
	if c.API != nil {
		s.checkKey(&c.Web)
		c.Web.providers = s.readProviders()
	}
}

// Links is what a command reads that makes links for people.
type Links struct {
	Database Database
	Web      Web
}

// Item is what farol item show reads: the progress of an item's files is
// in Redis.
type Item struct {
	Database Database
	Redis    Redis
}

// ItemStores is what farol item files reads as well if it needs a bucket.
type ItemStores struct {
	S3      S3
	Staging Staging
}

// Institution is what farol institution reads that has to do with buckets.
type Institution struct {
	Database Database
	S3       S3
	Site     Site
}

// Buckets is what farol bucket reads.
type Buckets struct {
	Storage    Storage
	Repair     Repair
	Quarantine string    // "": no setting names one
	Database   *Database // nil: none is set
	Site       Site
}

func (c *Buckets) check(s *reader) {
	s.quarantined(c.Repair, c.Storage)
	if s.isSet("FAROL_QUARANTINE_BUCKET") {
		c.Quarantine = c.Repair.Quarantine
	}
	if s.isSet("FAROL_DATABASE_URL") {
		c.Database = &Database{}
		s.read(c.Database)
	}
}

// Deposits is what farol serve reads as well, to judge bags and to have browsers upload them.
type Deposits struct {
	S3       S3
	Profiles Profiles
	Bags
}
