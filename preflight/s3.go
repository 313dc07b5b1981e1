package preflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight/trial"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/inventory"
	"github.com/farol-preservation/farol/storage/setup"
)

// bucketsAtOnce is how many buckets of institutions are asked at a time.
const bucketsAtOnce = 16

// probe opens a bucket and sends a signed request, or says what is wrong with the bucket.
func probe(ctx context.Context, client *storage.Client, t storage.Target, service string) (*storage.Bucket, *fault.Error) {
	b, err := client.Bucket(t)
	if err == nil {
		err = b.Check(ctx)
	}
	if err != nil {
		return nil, s3Failed(service, err)
	}
	return b, nil
}

func s3Failed(service string, err error) *fault.Error {
	return blamed(service, err, func(err error) (fault.Kind, bool) { return fault.Denied, errors.Is(err, storage.ErrDenied) })
}

// bucketFailed is the finding about a bucket that cannot be used, with the settings
// by which it is reached.
func bucketFailed(e *fault.Error, what string, names bucketSettings) Finding {
	todo := ""
	switch e.Kind {
	case fault.Denied:
		todo = fmt.Sprintf("correct %s, or allow the key to use the bucket that %s names", names.key, names.bucket)
	case fault.Missing:
		todo = fmt.Sprintf("create it with `farol bucket create`, or correct %s", names.bucket)
	case fault.Skewed:
		todo = "synchronize the clock of this host by NTP"
	case fault.Overloaded:
		todo = fmt.Sprintf("wait until the service that %s names accepts requests again", names.endpoint)
	default:
		todo = fmt.Sprintf("check that the service that %s names answers and that its certificate is trusted (%s)", names.endpoint, names.ca)
	}
	f := bad(e, what, todo)
	if e.Kind == fault.Denied {
		f.cause = names.key
	}
	return f
}

// bucketSettings are the names of the settings that lead to a bucket.
type bucketSettings struct{ bucket, endpoint, key, ca string }

func sharedSettings(bucket string, shared settings.S3) bucketSettings {
	return bucketSettings{bucket, "FAROL_S3_ENDPOINT", shared.KeyOf(shared.Target("")), "FAROL_S3_CA_FILE"}
}

// targetSettings names a target's own settings where they differ from the shared.
func targetSettings(t storage.Target, shared settings.S3) bucketSettings {
	prefix, common := settings.TargetPrefix(t.Name), sharedSettings("", shared)
	names := bucketSettings{prefix + "BUCKET", prefix + "ENDPOINT", common.key, common.ca}
	if t.Endpoint == shared.Endpoint && shared.Endpoint != "" {
		names.endpoint = common.endpoint
	}
	names.key = shared.KeyOf(t)
	if t.CAFile != shared.CAFile {
		names.ca = prefix + "CA_FILE"
	}
	return names
}

// checkOwn checks a bucket in which the pipeline keeps something for itself.
func (s Surroundings) checkOwn(ctx context.Context, client *storage.Client, name, what, setting string) []Finding {
	service, names := fault.Bucket(name), sharedSettings(setting, s.Storage.S3)
	b, e := probe(ctx, client, s.Storage.Target(name), service)
	if e != nil {
		return []Finding{bucketFailed(e, what, names)}
	}
	list, o := []Finding{good(service, what, "bucket "+b.Name()+" answers")}, trial.Options{Object: true, Uploads: true}
	if what == stagingCheck {
		list[0], o.Signed, o.Ways = stagingVersions(ctx, service, b), true, s.first(b.Endpoint())
	}
	if s.Write != WriteNothing {
		list = append(list, rights(ctx, service, b, names, o, ""))
	}
	return list
}

// first tells whether the abilities of a store are to be tried here: once for each.
func (s Surroundings) first(what string) bool {
	_, was := s.tried.LoadOrStore(what, true)
	return !was
}

const (
	stagingCheck = "staging bucket"
	keepCheck    = "bucket for metadata" // without it Cleanup waits
)

// stagingVersions warns of versions, which Cleanup never removes.
func stagingVersions(ctx context.Context, service string, b *storage.Bucket) Finding {
	if keeps, err := b.KeepsVersions(ctx); err == nil && keeps {
		return warn(service, stagingCheck, "it answers, but keeps versions: objects that Cleanup deletes stay and cost money",
			"suspend the versioning of the bucket that FAROL_STAGING_BUCKET names, or add a lifecycle rule that removes old versions after a day")
	}
	return good(service, stagingCheck, "bucket "+b.Name()+" answers")
}

func (s Surroundings) checkTarget(ctx context.Context, client *storage.Client, t storage.Target) []Finding {
	const what = "target"
	service, names := fault.Bucket(t.Name), targetSettings(t, s.Storage.S3)
	b, e := probe(ctx, client, t, service)
	if e != nil {
		return []Finding{bucketFailed(e, what, names)}
	}
	found := fmt.Sprintf("bucket %s answers, class %s", b.Name(), b.Class())
	if keeps, err := b.KeepsVersions(ctx); err == nil && keeps {
		found += ", keeps versions"
	}
	if s.Starting {
		return []Finding{good(service, what, found)}
	}
	lock, err := b.Lock(ctx)
	if lock != "" {
		found += ", Object Lock " + lock
	}
	list := []Finding{good(service, what, found)}
	locks, spare := err != nil || lock != "" && lock != "on", ""
	if s.Keeps {
		spare = trial.Delete
	}
	if locks && s.Write != WriteNothing {
		list = append(list, good(service, "lock", "no trial object is written: the store might keep it. Other buckets of the store show what it can do"))
	}
	return append(list, rights(ctx, service, b, names, s.trialOf(ctx, client, t, b, locks), spare))
}

// trialOf is what is tried in a target. No object is written where it might stay.
func (s Surroundings) trialOf(ctx context.Context, client *storage.Client, t storage.Target, b *storage.Bucket, locks bool) trial.Options {
	o := trial.Options{Uploads: s.Write != WriteNothing, Erase: true}
	erases := b.MayErase(ctx, trialKey()) == nil
	s.power.note(t, erases && !locks)
	if erases && !locks && (s.Write == WriteAll || s.Write == WriteHot && !isArchive(b.Class())) {
		o.Object = true
		o.From, _ = client.Bucket(s.Storage.Target(s.Storage.Staging)) // whose failure has a row of its own
		o.Ways = s.first(b.Endpoint()) || o.From != nil && b.Reaches(o.From) && s.first("copy "+b.Endpoint())
	}
	return o
}

func trialKey() string { return "farol-check/" + strings.ToLower(rand.Text()) }

// isArchive reports whether a class charges for each object for months at least.
func isArchive(class string) bool {
	return strings.Contains(class, "GLACIER") || strings.Contains(class, "ARCHIVE") || strings.HasSuffix(class, "_IA")
}

// rights tries what a worker does in a bucket, and names what it may not. Of the right that is spare, only
// whether there is one is said.
func rights(ctx context.Context, service string, b *storage.Bucket, names bucketSettings, o trial.Options, spare string) Finding {
	const what = "rights"
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	var may, missing []string
	var first error
	without := ""
	for _, r := range trial.Try(ctx, b, trialKey(), o) {
		switch {
		case r.Err == nil:
			may = append(may, r.Right)
		case r.Right == spare && errors.Is(r.Err, storage.ErrDenied):
			without = "; not " + spare + ", which the pools in FAROL_POOLS do not need"
		default:
			missing = append(missing, r.Right)
			first = errors.Join(first, r.Err)
		}
	}
	if first == nil {
		return good(service, what, strings.Join(may, ", ")+" by "+names.key+without)
	}
	e := s3Failed(service, first)
	f := bad(&fault.Error{Service: service, Kind: e.Kind, Err: fmt.Errorf("missing: %s: %w", strings.Join(missing, ", "), first)}, what, fmt.Sprintf("allow these to the key in %s, in the bucket that %s names", names.key, names.bucket))
	f.Missing = missing
	if slices.Contains(missing, "remove the trial object") {
		f.Todo += "; then delete what is left under farol-check/"
	}
	return f
}

// checkInstitutions checks the buckets of all active institutions. A failure holds back
// only that institution's work.
func (s Surroundings) checkInstitutions(ctx context.Context, client *storage.Client) []Finding {
	r, db, err := s.openRegistry(ctx)
	if err != nil {
		return nil // the database has a row of its own
	}
	defer db.Close()
	var lists [][2]Finding
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bucketsAtOnce)
	const page = 500
	for after := int64(0); ; {
		institutions, err := r.Institutions(ctx, after, page, true)
		if err != nil {
			break
		}
		start := len(lists)
		lists = append(lists, make([][2]Finding, len(institutions))...)
		into := lists[start:]
		for i, in := range institutions {
			group.Go(func() error {
				into[i] = [2]Finding{
					s.institutionBucket(groupCtx, client, in, in.ReceivingBucket, "receiving bucket of "+in.Identifier, trial.Options{Delete: true, Signed: s.Origin != "", Origin: s.Origin}, s.Origin),
					s.institutionBucket(groupCtx, client, in, in.RestoreBucket, "restore bucket of "+in.Identifier, trial.Options{Uploads: true}, ""),
				}
				return nil
			})
		}
		if len(institutions) > 0 {
			after = institutions[len(institutions)-1].ID
		}
		if len(institutions) < page {
			break
		}
		if err := group.Wait(); err != nil { // the next page may move the list
			break
		}
	}
	if err := group.Wait(); err != nil {
		return nil
	}
	var all []Finding
	for _, pair := range lists {
		all = append(all, pair[:]...)
	}
	return all
}

func (s Surroundings) institutionBucket(ctx context.Context, client *storage.Client, in record.Institution, name, what string, o trial.Options, origin string) Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	service := fault.Bucket(name)
	names := sharedSettings("`farol institution list`", *s.S3)
	b, e := probe(ctx, client, s.S3.Target(name), service)
	if e != nil {
		f := bucketFailed(e, what, names)
		if e.Kind == fault.Denied || e.Kind == fault.Missing {
			f.Todo = fmt.Sprintf("create bucket %s of %s, or allow the key in %s to use it", name, in.Identifier, names.key)
		}
		return f
	}
	if s.Write != WriteNothing {
		if f := rights(ctx, service, b, names, o, ""); f.State != OK {
			f.Check = what
			return f
		}
	}
	if origin != "" {
		if allowed, err := setup.AllowsUploads(ctx, b.Conn(), origin); err != nil || !allowed {
			found := "bucket answers; pages of " + origin + " may not upload to it"
			if err != nil {
				found = fmt.Sprintf("bucket answers; whether pages of %s may upload to it is unknown: %v", origin, err)
			}
			return warn(service, what, found, "to let people deposit with a browser: farol institution cors "+in.Identifier)
		}
	}
	return good(service, what, "bucket answers")
}

// checkInventory looks for the newest S3 Inventory of a target. Nothing but the doctor and a schedule
// depends on it.
func checkInventory(ctx context.Context, client *storage.Client, t storage.Target, i settings.Inventory) []Finding {
	const what = "inventory"
	source, err := i.Source(client)
	if err == nil {
		var report *inventory.Report
		if report, err = source.Newest(ctx, t.Bucket); err == nil {
			return []Finding{good(fault.Bucket(t.Name), what, "the newest report is of "+human.Time(report.Taken))}
		}
	}
	return []Finding{warn(fault.Bucket(t.Name), what, err.Error(), "correct "+i.Setting+", or unset it: until then `farol doctor` leaves the target unchecked")}
}

// endpoints has one target for each service that has buckets of ours.
func (s Surroundings) endpoints() (list []storage.Target) {
	if s.S3 != nil {
		list = append(list, s.S3.Target("farol"))
	}
	if s.Storage != nil {
		list = append(list, s.Storage.Target(s.Storage.Staging))
		list = append(list, s.Storage.Targets...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(t storage.Target) bool {
		was := seen[s3URL(t)]
		seen[s3URL(t)] = true
		return was
	})
}

func s3URL(t storage.Target) string {
	return cmp.Or(t.Endpoint, "https://s3."+cmp.Or(t.Region, "us-east-1")+".amazonaws.com")
}

// checkS3Clock compares this host's clock with the Date of an answer. A service that
// refuses us for the difference is fatal; while requests are let in, since the
// difference is made up for, it is not.
func (s Surroundings) checkS3Clock(ctx context.Context, client *storage.Client, t storage.Target) []Finding {
	const service, what = "s3", "clock"
	b, err := client.Bucket(t)
	if err != nil {
		return nil // its buckets have rows of their own
	}
	err = b.Check(ctx)
	skew, known := b.Conn().Skew()
	text := skewText(skew) + " that of " + s3URL(t)
	switch {
	case !known:
		return nil
	case skew.Abs() <= slightSkew:
		return []Finding{good(service, what, "within a minute of "+s3URL(t))}
	case skew.Abs() <= mostSkew:
		return []Finding{warn(service, what, text, "synchronize the clock of this host by NTP: beyond 15 minutes S3 refuses requests")}
	case err == nil || s3Failed(service, err).Kind != fault.Skewed:
		return []Finding{warn(service, what, text+"; requests are signed with its time", "synchronize the clock of this host by NTP")}
	}
	f := bad(&fault.Error{Service: service, Kind: fault.Skewed, Err: errors.New(text)}, what,
		"synchronize the clock of this host by NTP, or set FAROL_S3_ENDPOINT to a service whose clock is right")
	f.Code = (&fault.Error{Service: fault.Bucket(t.Bucket), Kind: fault.Skewed, Err: err}).Code()
	return []Finding{f}
}
