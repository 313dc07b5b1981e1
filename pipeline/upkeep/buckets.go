package upkeep

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// BucketReader finds new bags in the institutions' receiving buckets and makes a
// work item for each. Any number of readers may run at once, but a BucketReader is not safe
// for concurrent use.
type BucketReader struct {
	Registry  *registry.Registry
	Receiving func(bucket string) (*storage.Bucket, error)
	Log       *slog.Logger

	logged map[string]bool // objects that were logged as not a bag, by bucket and key
}

// mostLogged bounds logged.
const mostLogged = 10_000

// ReadAll reads the receiving bucket of every active institution once and
// returns how many work items it made. A bucket that cannot be read does not
// keep it from the others; the errors come together at the end.
func (r *BucketReader) ReadAll(ctx context.Context) (created int, err error) {
	err = eachInstitution(ctx, r.Registry, true, "read the receiving bucket of", func(ctx context.Context, in record.Institution) error {
		n, err := r.read(ctx, in)
		created += n
		return err
	})
	return created, err
}

// eachInstitution does something with each institution, or with each that is active. One whose
// bucket cannot be reached does not keep it from the others.
func eachInstitution(ctx context.Context, r *registry.Registry, active bool, what string, do func(context.Context, record.Institution) error) error {
	const page = 100
	var errs []error
	for after := int64(0); ; {
		list, err := r.Institutions(ctx, after, page, active)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, in := range list {
			if err := do(ctx, in); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", what, in.Identifier, err))
			}
		}
		if len(list) < page || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		after = list[len(list)-1].ID
	}
}

func (r *BucketReader) read(ctx context.Context, in record.Institution) (created int, err error) {
	bucket, err := r.Receiving(in.ReceivingBucket)
	if err != nil {
		return 0, err
	}
	listed, err := r.Registry.Now(ctx)
	if err != nil {
		return 0, err
	}
	const most = 500
	for page, err := range many.Pages(most, bucket.List(ctx, "", "")) {
		if err != nil {
			return created, err
		}
		var uploads []registry.Upload
		for _, object := range page {
			if why := notABag(object); why != "" {
				r.tell(ctx, in, object.Key, why)
				continue
			}
			u := registry.Upload{Key: recordable(object.Key), ETag: object.ETag, Size: object.Size, LastModified: object.LastModified}
			if slices.ContainsFunc(uploads, func(o registry.Upload) bool { return o.Key == u.Key && o.ETag == u.ETag }) {
				continue // keys that the server cannot tell apart in its listing: one item says what is wrong with them
			}
			uploads = append(uploads, u)
		}
		n, err := r.Create(ctx, in, listed, uploads)
		created += n
		if err != nil {
			return created, err
		}
	}
	return created, nil
}

// Create makes items of uploads. If the database refuses them, each is tried by itself: a
// refused upload is logged and left, and the others become items.
func (r *BucketReader) Create(ctx context.Context, in record.Institution, listed time.Time, uploads []registry.Upload) (created int, err error) {
	ids, err := r.Registry.CreateIngests(ctx, in, listed, uploads)
	switch {
	case errors.Is(err, registry.ErrRefused) && len(uploads) == 1:
		r.Log.ErrorContext(ctx, "cannot make an item of an upload; leaving the upload in the bucket", "institution", in.Identifier, "key", uploads[0].Key, "err", err)
		return 0, nil
	case errors.Is(err, registry.ErrRefused):
		for i := range uploads {
			n, err := r.Create(ctx, in, listed, uploads[i:i+1])
			if created += n; err != nil {
				return created, err
			}
		}
		return created, nil
	case len(ids) > 0:
		r.Log.InfoContext(ctx, "new bags", "institution", in.Identifier, "items", len(ids), "first", ids[0])
	}
	return len(ids), err
}

// tell logs an object that is not a bag, once and not at each scan.
func (r *BucketReader) tell(ctx context.Context, in record.Institution, key, why string) {
	name := in.ReceivingBucket + "/" + key
	if r.logged[name] {
		return
	}
	if r.logged == nil || len(r.logged) >= mostLogged {
		r.logged = map[string]bool{}
	}
	r.logged[name] = true
	r.Log.InfoContext(ctx, "upload is not a bag; leaving it in the bucket", "institution", in.Identifier, "key", key, "why", why)
}

// notABag says why an object in a receiving bucket is not taken for a bag; ""
// if it is. A tar whose name no bag may have is taken for one, so that its item
// tells the depositor: see [bag.JudgeName].
func notABag(o storage.Object) string {
	switch {
	case !strings.HasSuffix(o.Key, ".tar"):
		return "its name does not end in .tar"
	case inFolder(o.Key):
		return "it is in a folder"
	case o.ETag == "":
		return "its bucket gives it no ETag, which identifies an upload"
	}
	return ""
}

// inFolder tells whether a key lies in what people see as folders. A slash that
// makes none, as in "/bag.tar" or "../bag.tar", is part of a name.
func inFolder(key string) bool {
	parts := strings.Split(key, "/")
	folders := parts[:len(parts)-1]
	return len(folders) > 0 && !slices.ContainsFunc(folders, func(f string) bool { return naming.Fault(f) != "" })
}

// recordable is a key as the registry can keep it. A key that is not text, or is too long, is
// replaced by a readable name that is always the same and no legal name either.
func recordable(key string) string {
	const longest = 1000 // of a name on record
	name := key
	if !utf8.ValidString(key) || strings.Contains(key, "\x00") {
		quoted := strconv.Quote(key)
		name = quoted[1 : len(quoted)-1]
	}
	if len(name) <= longest {
		return name
	}
	head := name[:longest-100]
	for !utf8.ValidString(head) {
		head = head[:len(head)-1]
	}
	return fmt.Sprintf("%s…%x.tar", head, sha256.Sum256([]byte(key)))
}
