package servers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// coldAttribute holds an object's coldState. It is beside S3's own metadata, so
// that no client sees it.
const coldAttribute = "farol-cold"

// coldStore adds to a gateway on plain files what it lacks of S3: storage
// classes, and objects in the cold classes that have to be restored before they
// can be read. It follows the API reference of PutObject, GetObject and
// RestoreObject, except that all tiers take the same delay and that a version
// other than the latest counts as what the latest is.
type coldStore struct {
	*posix.Posix
	attributes meta.MetadataStorer
	sidecar    bool          // attributes stay when the file is replaced
	delay      time.Duration // of a restoration
}

var _ backend.Backend = (*coldStore)(nil)

// coldState is the class of an object and, if it was restored, from when until
// when it can be read.
type coldState struct {
	Class          types.StorageClass
	Ready, Expires time.Time
}

func (s coldState) cold() bool {
	return s.Class == types.StorageClassGlacier || s.Class == types.StorageClassDeepArchive
}

// restored returns the x-amz-restore header and whether the object can be read.
func (s coldState) restored(now time.Time) (header *string, readable bool) {
	switch {
	case !s.cold():
		return nil, true
	case s.Ready.IsZero() || now.After(s.Expires):
		return nil, false
	case now.Before(s.Ready):
		return aws.String(`ongoing-request="true"`), false
	}
	return aws.String(fmt.Sprintf(`ongoing-request="false", expiry-date="%s"`,
		s.Expires.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))), true
}

// shown is the class as responses have it: S3 leaves out the standard one.
func (s coldState) shown() types.StorageClass {
	if s.Class == types.StorageClassStandard {
		return ""
	}
	return s.Class
}

// load returns the state of an object; one that is not there is standard, and
// the gateway will say that it is missing.
func (c *coldStore) load(bucket, key string) (coldState, error) {
	s := coldState{Class: types.StorageClassStandard}
	v, err := c.attributes.RetrieveAttribute(nil, bucket, key, coldAttribute)
	if err != nil {
		return s, nil //nolint:nilerr // none: it is standard, or missing
	}
	if err := json.Unmarshal(v, &s); err != nil {
		return s, fmt.Errorf("read the storage class of %s/%s: %w", bucket, key, err)
	}
	return s, nil
}

// save stores the state of an object, of the open file f if that is not nil.
func (c *coldStore) save(f *os.File, bucket, key string, s coldState) error {
	if s.Class == types.StorageClassStandard || s.Class == "" {
		if f != nil && !c.sidecar {
			return nil // a new file has none
		}
		err := c.attributes.DeleteAttribute(bucket, key, coldAttribute)
		if errors.Is(err, meta.ErrNoSuchKey) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	v, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return c.attributes.StoreAttribute(f, bucket, key, coldAttribute, v)
}

// classOf reads the class from the request itself, since the gateway drops it
// for PutObject and CreateMultipartUpload.
func classOf(ctx context.Context) (types.StorageClass, error) {
	class := types.StorageClassStandard
	if rc, ok := ctx.(*fasthttp.RequestCtx); ok {
		if h := rc.Request.Header.Peek("X-Amz-Storage-Class"); len(h) > 0 {
			class = types.StorageClass(h)
		}
	}
	return class, known(class)
}

func known(class types.StorageClass) error {
	if !slices.Contains(class.Values(), class) {
		return s3err.APIError{Code: "InvalidStorageClass", Description: "The storage class you specified is not valid", HTTPStatusCode: 400}
	}
	return nil
}

// PutObject keeps the class in the file before it gets its name.
func (c *coldStore) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	class, err := classOf(ctx)
	if err != nil {
		return s3response.PutObjectOutput{}, err
	}
	return c.PutObjectWithPostFunc(ctx, in, func(f *os.File) error {
		return c.save(f, *in.Bucket, *in.Key, coldState{Class: class})
	})
}

// CreateMultipartUpload keeps the class in the directory of the upload.
func (c *coldStore) CreateMultipartUpload(ctx context.Context, in s3response.CreateMultipartUploadInput) (s3response.InitiateMultipartUploadResult, error) {
	class, err := classOf(ctx)
	if err != nil {
		return s3response.InitiateMultipartUploadResult{}, err
	}
	out, err := c.Posix.CreateMultipartUpload(ctx, in)
	if err != nil || class == types.StorageClassStandard {
		return out, err
	}
	return out, c.save(nil, *in.Bucket, uploadDir(*in.Key, out.UploadId), coldState{Class: class})
}

// uploadDir is where the gateway keeps an upload (posix.CreateMultipartUpload).
func uploadDir(key, uploadID string) string {
	return filepath.Join(posix.MetaTmpMultipartDir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))), uploadID)
}

// CompleteMultipartUpload gives the object the class of its upload.
func (c *coldStore) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	s, err := c.load(*in.Bucket, uploadDir(*in.Key, aws.ToString(in.UploadId)))
	if err != nil {
		return s3response.CompleteMultipartUploadResult{}, "", err
	}
	out, version, err := c.Posix.CompleteMultipartUpload(ctx, in)
	// A repeated completion finds no upload and must leave the object's class;
	// the sidecar of a cold object that a standard one replaces is the price.
	if err == nil && s.Class != types.StorageClassStandard {
		err = c.save(nil, *in.Bucket, *in.Key, s)
	}
	return out, version, err
}

// readable returns InvalidObjectState if the source of a copy is cold.
func (c *coldStore) readable(source *string) error {
	path, _, _ := strings.Cut(strings.TrimPrefix(aws.ToString(source), "/"), "?versionId=")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	bucket, key, _ := strings.Cut(path, "/")
	s, err := c.load(bucket, key)
	if err != nil {
		return err
	}
	if _, ok := s.restored(time.Now()); !ok {
		return s3err.GetAPIError(s3err.ErrInvalidObjectState)
	}
	return nil
}

// CopyObject refuses a cold source and gives the copy its own class.
func (c *coldStore) CopyObject(ctx context.Context, in s3response.CopyObjectInput) (s3response.CopyObjectOutput, error) {
	class := in.StorageClass
	if class == "" {
		class = types.StorageClassStandard
	}
	err := known(class)
	if err == nil {
		err = c.readable(in.CopySource)
	}
	if err != nil {
		return s3response.CopyObjectOutput{}, err
	}
	out, err := c.Posix.CopyObject(ctx, in)
	if err == nil {
		err = c.save(nil, *in.Bucket, *in.Key, coldState{Class: class})
	}
	return out, err
}

// UploadPartCopy refuses a cold source.
func (c *coldStore) UploadPartCopy(ctx context.Context, in *s3.UploadPartCopyInput) (s3response.CopyPartResult, error) {
	if err := c.readable(in.CopySource); err != nil {
		return s3response.CopyPartResult{}, err
	}
	return c.Posix.UploadPartCopy(ctx, in)
}

// HeadObject adds the class and the state of a restoration.
func (c *coldStore) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	out, err := c.Posix.HeadObject(ctx, in)
	if err != nil {
		return out, err
	}
	s, err := c.load(*in.Bucket, *in.Key)
	out.StorageClass = s.shown()
	out.Restore, _ = s.restored(time.Now())
	return out, err
}

// GetObject refuses an object that is cold and not restored.
func (c *coldStore) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	s, err := c.load(*in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}
	header, ok := s.restored(time.Now())
	if !ok {
		return nil, s3err.GetAPIError(s3err.ErrInvalidObjectState)
	}
	out, err := c.Posix.GetObject(ctx, in)
	if err == nil {
		out.StorageClass, out.Restore = s.shown(), header
	}
	return out, err
}

// ListObjects adds the classes.
func (c *coldStore) ListObjects(ctx context.Context, in *s3.ListObjectsInput) (s3response.ListObjectsResult, error) {
	return c.ListObjectsParametrized(ctx, in, c.listed)
}

// ListObjectsV2 adds the classes.
func (c *coldStore) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input) (s3response.ListObjectsV2Result, error) {
	return c.ListObjectsV2Parametrized(ctx, in, c.listed)
}

func (c *coldStore) listed(bucket string, fetchOwner bool) backend.GetObjFunc {
	plain := c.FileToObj(bucket, fetchOwner)
	return func(path string, d fs.DirEntry) (s3response.Object, error) {
		o, err := plain(path, d)
		if err != nil {
			return o, err
		}
		s, err := c.load(bucket, path)
		o.StorageClass = types.ObjectStorageClass(s.Class)
		return o, err
	}
}

// RestoreObject makes a cold object readable after the delay, for the days that
// were asked for, and answers 202. One that is readable already stays so for that
// long from now, and the answer is 200.
func (c *coldStore) RestoreObject(ctx context.Context, in *s3.RestoreObjectInput) error {
	if _, err := c.Posix.HeadObject(ctx, &s3.HeadObjectInput{Bucket: in.Bucket, Key: in.Key}); err != nil {
		return err
	}
	s, err := c.load(*in.Bucket, *in.Key)
	if err != nil {
		return err
	}
	if !s.cold() {
		return s3err.GetAPIError(s3err.ErrInvalidObjectState)
	}
	now := time.Now()
	header, readable := s.restored(now)
	if header != nil && !readable {
		return s3err.APIError{Code: "RestoreAlreadyInProgress", Description: "Object restore is already in progress", HTTPStatusCode: 409}
	}
	days := 1
	if in.RestoreRequest != nil && in.RestoreRequest.Days != nil {
		days = int(*in.RestoreRequest.Days)
	}
	if !readable {
		s.Ready = now.Add(c.delay)
	}
	s.Expires = now.Add(c.delay).AddDate(0, 0, days)
	if err := c.save(nil, *in.Bucket, *in.Key, s); err != nil || readable {
		return err
	}
	return accepted{s3err.APIError{Code: "Accepted", HTTPStatusCode: 202}}
}

// accepted is the answer to a restoration that begins. The gateway answers 200 to
// all but errors, so this is one to it, though not to clients.
type accepted struct{ s3err.APIError }

// XMLBody is empty, as S3's is.
func (accepted) XMLBody(string, string) []byte { return nil }
