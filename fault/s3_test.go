package fault_test

import (
	"testing"

	"github.com/farol-preservation/farol/fault"
)

// What six stores say, by operation: each line was seen in an answer, or is in the list of error
// codes of the store. "" is about one object.
func TestAnswersOfStores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		store, operation, code string
		status                 int
		want                   fault.Kind
	}{
		{"AWS", "GetObject", "NoSuchKey", 404, ""},
		{"AWS", "HeadObject", "NotFound", 404, ""},
		{"AWS", "GetObject", "InvalidObjectState", 403, ""},
		{"AWS", "GetObject", "PreconditionFailed", 412, ""},
		{"AWS", "GetObject", "InvalidRange", 416, ""},
		{"AWS", "HeadObject", "", 304, ""},
		{"AWS", "CopyObject", "ConditionalRequestConflict", 409, ""},
		{"AWS", "ListParts", "NoSuchUpload", 404, ""},
		{"AWS", "DeleteObject", "NoSuchVersion", 404, ""},
		{"AWS", "GetBucketCors", "NoSuchCORSConfiguration", 404, ""},
		{"AWS", "GetObjectLockConfiguration", "ObjectLockConfigurationNotFoundError", 404, ""},
		{"AWS", "PutObject", "AccessDenied", 403, fault.Denied},
		{"AWS", "HeadObject", "Forbidden", 403, fault.Denied},
		{"AWS", "PutObject", "InvalidAccessKeyId", 403, fault.Denied},
		{"AWS", "PutObject", "SignatureDoesNotMatch", 403, fault.Denied},
		{"AWS", "PutObject", "ExpiredToken", 400, fault.Denied},
		{"AWS", "PutObject", "AuthorizationHeaderMalformed", 400, fault.Denied},
		{"AWS", "PutObject", "KMS.DisabledException", 400, fault.Denied},
		{"AWS", "ListObjectsV2", "NoSuchBucket", 404, fault.Missing},
		{"AWS", "ListObjectsV2", "PermanentRedirect", 301, fault.Missing},
		{"AWS", "PutObject", "RequestTimeTooSkewed", 403, fault.Skewed},
		{"AWS", "PutObject", "SlowDown", 503, fault.Overloaded},
		{"AWS", "PutObject", "", 429, fault.Overloaded},
		{"AWS", "PutObject", "InternalError", 500, fault.Unavailable},
		{"AWS", "PutObject", "RequestTimeout", 400, fault.Unavailable},
		{"AWS", "PutObject", "OperationAborted", 409, fault.Unavailable},
		{"AWS", "PutObject", "IncompleteBody", 400, fault.Unavailable},
		{"AWS", "UploadPart", "BadDigest", 400, fault.WrongAnswer},
		{"AWS", "PutObject", "XAmzContentSHA256Mismatch", 400, fault.WrongAnswer},
		{"AWS", "CompleteMultipartUpload", "EntityTooSmall", 400, fault.Refused},
		{"AWS", "CompleteMultipartUpload", "InvalidPart", 400, fault.Refused},
		{"AWS", "CompleteMultipartUpload", "InvalidPartOrder", 400, fault.Refused},
		{"AWS", "PutObject", "EntityTooLarge", 400, fault.Refused},
		{"AWS", "PutObject", "KeyTooLongError", 400, fault.Refused},
		{"AWS", "PutObject", "MetadataTooLarge", 400, fault.Refused},
		{"AWS", "PutObject", "InvalidStorageClass", 400, fault.Refused},
		{"AWS", "PutObject", "InvalidDigest", 400, fault.Refused},
		{"AWS", "DeleteObjects", "MalformedXML", 400, fault.Refused},
		{"AWS", "DeleteObjects", "MissingContentMD5", 400, fault.Refused},
		{"AWS", "UploadPartCopy", "InvalidRequest", 400, fault.Refused},
		{"AWS", "CreateBucket", "IllegalLocationConstraintException", 400, fault.Refused},
		{"AWS", "PutObject", "MissingContentLength", 411, fault.Refused},
		{"AWS", "PutObject", "NotImplemented", 501, fault.Refused},
		{"AWS", "PutObject", "MethodNotAllowed", 405, fault.Refused},
		{"MinIO", "UploadPartCopy", "InvalidArgument", 400, fault.Refused},
		{"MinIO", "DeleteObject", "InvalidRequest", 400, fault.Refused},
		{"MinIO", "PutObject", "XMinioInvalidObjectName", 400, fault.Refused},
		{"MinIO", "PutObject", "XMinioStorageFull", 507, fault.Full},
		{"MinIO", "PutObject", "XMinioAdminBucketQuotaExceeded", 400, fault.Full},
		{"MinIO", "PutObject", "XMinioServerNotInitialized", 503, fault.Overloaded},
		{"MinIO", "PutObject", "SlowDownWrite", 503, fault.Overloaded},
		{"Ceph", "ListParts", "NoSuchKey", 404, ""},
		{"Ceph", "AbortMultipartUpload", "", 404, ""},
		{"Ceph", "PutObject", "QuotaExceeded", 403, fault.Full},
		{"Ceph", "PutObject", "UserSuspended", 403, fault.Denied},
		{"Ceph", "PutObject", "MissingContentLength", 411, fault.Refused},
		{"Swift", "DeleteObjects", "InvalidRequest", 400, fault.Refused},
		{"Swift", "PutObject", "BadRequest", 400, fault.Denied}, // as AWS says to a HEAD with a token that has expired
		{"Swift", "PutObject", "RequestTimeout", 408, fault.Unavailable},
		{"Swift", "HeadObject", "", 401, fault.Denied},
		{"SeaweedFS", "PutObject", "InternalError", 500, fault.Unavailable},
		{"SeaweedFS", "PutObject", "ErrTooManyRequest", 503, fault.Overloaded},
		{"SeaweedFS", "UploadPart", "NoSuchUpload", 404, ""},
		{"versitygw", "PutObject", "XAdminUserNotFound", 404, fault.Denied},
		{"versitygw", "DeleteObjects", "AccessDenied", 0, fault.Denied},
		{"another", "PutObject", "NobodyKnowsThis", 400, fault.Refused},
		{"another", "DeleteObjects", "NobodyKnowsThis", 0, fault.Refused},
		{"another", "PutObject", "NobodyKnowsThis", 409, fault.Unavailable},
		{"another", "PutObject", "NobodyKnowsThis", 418, fault.Refused},
		{"a proxy", "PutObject", "ExpectationFailed", 417, fault.Unavailable},
		{"another", "PutObject", "NobodyKnowsThis", 599, fault.Unavailable},
	} {
		if k, ok := fault.OfS3(tt.operation, tt.code, tt.status); k != tt.want || ok != (tt.want != "") {
			t.Errorf("%s, %s: %d %s is %q, %t; want %q", tt.store, tt.operation, tt.status, tt.code, k, ok, tt.want)
		}
	}
}
