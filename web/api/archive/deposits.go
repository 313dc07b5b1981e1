package archive

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

const (
	// partURLs is how many parts a caller may ask for at once, and partTime how long their
	// URLs are good.
	partURLs = 100
	partTime = time.Hour
	// completing bounds the completion of an upload, which S3 may take minutes for. It goes on
	// although the caller has gone.
	completing = 15 * time.Minute
	// mostUploads is how many uploads are listed.
	mostUploads = 1000
)

type (
	// DepositOwner says whose bag it is.
	DepositOwner struct {
		Institution string `json:"institution,omitempty" query:"institution" maxLength:"255" doc:"Identifier; without it, your own institution"`
	}
	// DepositName is the name of a bag, and whose it is.
	DepositName struct {
		DepositOwner

		Name string `json:"name" query:"name" required:"true" minLength:"5" maxLength:"255" doc:"Of the tar, such as photographs.tar"`
	}
	depositBody struct {
		DepositName

		Size    int64 `json:"size" minimum:"1" maximum:"5497558138880" doc:"Of the tar in bytes"`
		Replace bool  `json:"replace,omitempty" doc:"Whether a tar of this name that is in the receiving bucket is replaced"`
	}
	// DepositID is a request about an upload.
	DepositID struct {
		ID string `path:"id" minLength:"1" maxLength:"1024" doc:"ID of the upload"`
	}
	depositQuery struct {
		DepositID
		DepositName
	}
	depositEnd struct {
		DepositID

		Body DepositName
	}
	depositRequest struct {
		DepositID

		Body depositBody
	}
	depositView struct {
		ID       string     `json:"id"`
		Name     string     `json:"name"`
		PartSize int64      `json:"part_size,omitempty" doc:"Bytes of each part but the last; only of an upload that begins"`
		BegunAt  *time.Time `json:"begun_at,omitempty" doc:"By the clock of the S3 service; only in a list"`
	}
	sentPart struct {
		Number int    `json:"number"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256" doc:"In base64; empty if the S3 service keeps none"`
	}
	depositParts struct {
		Parts []sentPart `json:"parts" doc:"That have arrived"`
	}
	wantedPart struct {
		Number int    `json:"number" minimum:"1" maximum:"10000"`
		SHA256 string `json:"sha256" minLength:"44" maxLength:"44" doc:"Of the bytes of the part, in base64"`
	}
	partsRequest struct {
		DepositID

		Body struct {
			DepositName

			Size  int64        `json:"size" minimum:"1" maximum:"5497558138880" doc:"Of the tar in bytes"`
			Parts []wantedPart `json:"parts" minItems:"1" maxItems:"100"`
		}
	}
	partURL struct {
		Number int    `json:"number"`
		URL    string `json:"url" doc:"Send the part to it by PUT, with the header x-amz-checksum-sha256"`
		SHA256 string `json:"sha256" doc:"Value of that header"`
	}
	partURLList struct {
		Parts   []partURL `json:"parts"`
		Expires time.Time `json:"expires_at" doc:"Until then an upload of a part may begin"`
	}
	depositedView struct {
		Name string `json:"name"`
		Size int64  `json:"size"`
		ETag string `json:"etag"`
		Item *int64 `json:"item" doc:"ID of the work item; null: it was there before, or is created when the bucket is read next"`
	}
)

// deposits are uploads of bags.
func (a *handlers) deposits(t *ops.API) {
	op := func(id, method, path, summary, about string) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: permission.DepositsMake}
	}
	a.depositChecks(t, op("deposits.check", http.MethodPost, "/api/v1/deposits/check", "Judge a bag before it is uploaded",
		"The same as `farol validate`, but for the digests of files whose content is not in the outline. Nothing is kept. 503 while other bags are judged."))
	all := op("deposits.list", http.MethodGet, "/api/v1/deposits", "List uploads that were begun and not finished",
		"Up to 1,000, also those of bags that other programs have begun in the receiving bucket.")
	all.Answers = []int{http.StatusNotFound}
	ops.Register(t, all, a.listDeposits)
	begin := op("deposits.begin", http.MethodPost, "/api/v1/deposits", "Begin the upload of a bag",
		"Its parts have the size in the answer. 409 if the receiving bucket has a tar of this name.")
	begin.Audit, begin.Status = true, http.StatusCreated
	ops.Register(t, begin, a.beginDeposit)
	ops.Register(t, op("deposits.show", http.MethodGet, "/api/v1/deposits/{id}", "List the parts of an upload that have arrived", ""), a.showDeposit)
	ops.Register(t, op("deposits.parts", http.MethodPost, "/api/v1/deposits/{id}/parts", "Get the addresses to send parts to",
		"A page or program sends each part by PUT to its URL, which is good for an hour, for this part, and for content with this SHA-256."), a.depositParts)
	complete := op("deposits.complete", http.MethodPost, "/api/v1/deposits/{id}/complete", "Finish an upload, and create its work item",
		"409 if parts are missing, or if the receiving bucket has another tar of this name. Sent again, it is answered as before.")
	complete.Audit = true
	ops.Register(t, complete, a.completeDeposit)
	abort := op("deposits.abort", http.MethodPost, "/api/v1/deposits/{id}/abort", "Give up an upload, and delete its parts", "")
	abort.Audit, abort.Status = true, http.StatusNoContent
	ops.Register(t, abort, a.abortDeposit)
}

// depositor is the institution that a caller means, and its receiving bucket.
func (a *handlers) depositor(ctx context.Context, c access.Caller, identifier string) (record.Institution, *storage.Bucket, error) {
	_, own := c.Scope.Institution()
	if identifier = cmp.Or(identifier, own); identifier == "" {
		return record.Institution{}, nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "name the institution whose bag it is")
	}
	if a.Deposits.Bucket == nil {
		return record.Institution{}, nil, answer.Later("this server has no connection to the receiving buckets: its administrator sets FAROL_S3_ENDPOINT and the key in AWS_ACCESS_KEY_ID, or AWS_REGION where the platform has a key")
	}
	in, err := a.People().InstitutionNamed(ctx, c.Scope, identifier)
	if err != nil {
		return in, nil, err
	}
	bucket, err := a.Deposits.Bucket(in.ReceivingBucket)
	return in, bucket, err
}

// receiver is [API.depositor] for a bag of a name that it may have.
func (a *handlers) receiver(ctx context.Context, c access.Caller, n DepositName) (record.Institution, *storage.Bucket, error) {
	if fault := nameFault(n.Name); fault != "" {
		return record.Institution{}, nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fault)
	}
	return a.depositor(ctx, c, n.Institution)
}

// nameFault is why a bag cannot have a name; "": it can.
func nameFault(name string) string {
	if !strings.HasSuffix(name, ".tar") {
		return "the name does not end in .tar"
	}
	if f, ok := bag.JudgeName(name); !ok {
		return f.Message
	}
	return ""
}

// stored makes of an error of the receiving bucket what the caller is answered.
func (a *handlers) stored(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrNotFound):
		return registry.ErrNotFound
	case errors.Is(err, storage.ErrIncomplete):
		_, why, _ := strings.Cut(err.Error(), storage.ErrIncomplete.Error()+": ")
		return fmt.Errorf("%w: %w: %s", registry.ErrRefused, storage.ErrIncomplete, why)
	case errors.Is(err, storage.ErrChanged):
		return errWaiting
	}
	a.Log.WarnContext(ctx, "the receiving bucket does not answer; the caller was asked to try again", "err", err)
	return answer.Later("the receiving bucket does not answer now; try again in a moment")
}

var errWaiting = fmt.Errorf("%w: a tar of this name is in the receiving bucket already: wait until its item has ended, rename yours, or say that it is to be replaced", registry.ErrRefused)

func (a *handlers) listDeposits(ctx context.Context, c access.Caller, in *DepositOwner) (*answer.Body[answer.List[depositView]], error) {
	_, bucket, err := a.depositor(ctx, c, in.Institution)
	if err != nil {
		return nil, err
	}
	views, seen := []depositView{}, 0
	for u, err := range bucket.OpenUploads(ctx) {
		if err != nil {
			return nil, a.stored(ctx, err)
		}
		if nameFault(u.Key) == "" {
			views = append(views, depositView{ID: u.ID, Name: u.Key, BegunAt: &u.Begun})
		}
		if seen++; seen == mostUploads {
			break
		}
	}
	return answer.All(views), nil
}

func (a *handlers) beginDeposit(ctx context.Context, c access.Caller, in *answer.Body[depositBody]) (*answer.Body[depositView], error) {
	owner, bucket, err := a.receiver(ctx, c, in.Body.DepositName)
	if err != nil {
		return nil, err
	}
	entry := registry.AuditEntry{Operation: "deposits.begin", SubjectType: "deposit", SubjectID: in.Body.Name, Institution: owner.ID, Detail: map[string]any{"size": in.Body.Size}}
	v := depositView{Name: in.Body.Name, PartSize: storage.SignedPartSize(in.Body.Size)}
	u, err := a.begunDeposit(ctx, owner, bucket, in.Body)
	v.ID = u.ID
	return answer.Of(v), a.Registry.Noted(ctx, c.Actor(), entry, err)
}

func (a *handlers) begunDeposit(ctx context.Context, owner record.Institution, bucket *storage.Bucket, b depositBody) (u storage.OpenUpload, err error) {
	if owner.State != "A" {
		return u, fmt.Errorf("%w: the institution is deactivated, and its receiving bucket is not read", registry.ErrRefused)
	}
	_, there, err := received(ctx, bucket, b.Name)
	if err == nil && there && !b.Replace {
		return u, errWaiting
	}
	if err == nil {
		u, err = bucket.BeginUpload(ctx, b.Name, "application/x-tar")
	}
	return u, a.stored(ctx, err)
}

// received looks for a tar as the reader of the bucket sees it.
func received(ctx context.Context, bucket *storage.Bucket, name string) (o storage.Object, found bool, err error) {
	for o, err := range bucket.List(ctx, name, "") {
		return o, err == nil && o.Key == name, err // none comes before the one of the whole prefix
	}
	return o, false, nil
}

func (a *handlers) showDeposit(ctx context.Context, c access.Caller, in *depositQuery) (*answer.Body[depositParts], error) {
	_, bucket, err := a.receiver(ctx, c, in.DepositName)
	if err != nil {
		return nil, err
	}
	sent, err := bucket.SentParts(ctx, storage.OpenUpload{Key: in.Name, ID: in.ID})
	if err != nil {
		return nil, a.stored(ctx, err)
	}
	v := depositParts{Parts: []sentPart{}}
	for _, p := range sent {
		v.Parts = append(v.Parts, sentPart{p.Number, p.Size, p.SHA256})
	}
	return answer.Of(v), nil
}

func (a *handlers) depositParts(ctx context.Context, c access.Caller, in *partsRequest) (*answer.Body[partURLList], error) {
	b := in.Body
	owner, _, err := a.receiver(ctx, c, b.DepositName)
	if err != nil {
		return nil, err
	}
	bucket, err := a.Deposits.Public(owner.ReceivingBucket)
	if err != nil {
		return nil, err
	}
	size := storage.SignedPartSize(b.Size)
	v := partURLList{Expires: time.Now().Add(partTime).UTC().Truncate(time.Second)}
	for _, p := range b.Parts {
		length := min(size, b.Size-int64(p.Number-1)*size)
		sum, err := base64.StdEncoding.Strict().DecodeString(p.SHA256)
		if length <= 0 || err != nil || len(sum) != 32 {
			return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fmt.Sprintf("the tar has no part %d, or its sha256 is not 32 bytes in base64", p.Number))
		}
		at, err := bucket.SignPart(ctx, storage.OpenUpload{Key: b.Name, ID: in.ID}, p.Number, length, [32]byte(sum), partTime)
		if err != nil {
			return nil, err
		}
		v.Parts = append(v.Parts, partURL{p.Number, at.URL, p.SHA256})
	}
	return answer.Of(v), nil
}

func (a *handlers) completeDeposit(ctx context.Context, c access.Caller, in *depositRequest) (*answer.Body[depositedView], error) {
	owner, bucket, err := a.receiver(ctx, c, in.Body.DepositName)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completing)
	defer cancel()
	entry := registry.AuditEntry{Operation: "deposits.complete", SubjectType: "deposit", SubjectID: in.Body.Name, Institution: owner.ID, Detail: map[string]any{"size": in.Body.Size}}
	listed, err := a.Registry.Now(ctx)
	if err != nil {
		return nil, err
	}
	o, err := a.completed(ctx, bucket, in)
	if err != nil {
		return nil, a.Registry.Noted(ctx, c.Actor(), entry, err)
	}
	v, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (depositedView, error) {
		v := depositedView{Name: o.Key, Size: o.Size, ETag: o.ETag}
		u := registry.Upload{Key: o.Key, ETag: o.ETag, Size: o.Size, LastModified: o.LastModified, Seen: true}
		ids, err := a.Registry.CreateIngests(ctx, owner, listed, []registry.Upload{u})
		if len(ids) > 0 {
			v.Item = &ids[0]
		}
		return v, err
	})
	return answer.Of(v), err
}

// completed makes the tar of its parts, and returns it as the reader of the bucket sees it. It
// has been done if the upload is gone and there is a tar of the same size, in as many parts.
func (a *handlers) completed(ctx context.Context, bucket *storage.Bucket, in *depositRequest) (storage.Object, error) {
	b := in.Body
	_, failed := bucket.CompleteUpload(ctx, storage.OpenUpload{Key: b.Name, ID: in.ID}, b.Size, b.Replace)
	if failed != nil && !errors.Is(failed, storage.ErrNotFound) {
		return storage.Object{}, a.stored(ctx, failed)
	}
	o, found, err := received(ctx, bucket, b.Name)
	if err != nil {
		return o, a.stored(ctx, err)
	}
	part := storage.SignedPartSize(b.Size)
	same := o.Size == b.Size && strings.HasSuffix(o.ETag, fmt.Sprintf("-%d", (b.Size+part-1)/part))
	if !found || failed != nil && !same {
		return o, registry.ErrNotFound
	}
	return o, nil
}

func (a *handlers) abortDeposit(ctx context.Context, c access.Caller, in *depositEnd) (*answer.Empty, error) {
	owner, bucket, err := a.receiver(ctx, c, in.Body)
	if err != nil {
		return nil, err
	}
	entry := registry.AuditEntry{Operation: "deposits.abort", SubjectType: "deposit", SubjectID: in.Body.Name, Institution: owner.ID}
	u := storage.OpenUpload{Key: in.Body.Name, ID: in.ID}
	if _, err = bucket.SentParts(ctx, u); err == nil { // to abort what is not there is no failure for S3
		err = bucket.Abort(ctx, u)
	}
	return &answer.Empty{}, a.Registry.Noted(ctx, c.Actor(), entry, a.stored(ctx, err))
}
