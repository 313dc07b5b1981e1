package fault

import "net/http"

// ofS3 says what the error codes of S3 mean, in the words of six stores: Amazon S3, Ceph RGW,
// MinIO, OpenStack Swift, SeaweedFS and versitygw. "" is about one object or one question: what
// asks knows what it means. A code that is not here is judged by its status.
//
//nolint:gochecknoglobals // a constant, but for Go
var ofS3 = func() map[string]Kind {
	all := map[string]Kind{}
	for kind, codes := range map[Kind][]string{
		"": {
			"NoSuchKey", "NoSuchVersion", "NoSuchUpload", "PreconditionFailed", "ConditionalRequestConflict", "NotModified", "InvalidObjectState", "InvalidRange",
			"NoSuchCORSConfiguration", "ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration",
			"RestoreAlreadyInProgress", "ObjectAlreadyInActiveTierError", "GlacierExpeditedRetrievalNotAvailable",
		},
		// Bytes that were checked before they left arrived as others.
		WrongAnswer: {"BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"},
		Missing:     {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "NoSuchTenant"},
		Skewed:      {"RequestTimeTooSkewed", "RequestExpired"},
		Overloaded: {
			"SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded",
			"ServiceUnavailable", "XMinioServerNotInitialized", "Busy",
		},
		Full: {
			"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "StorageFull", "ServiceQuotaExceededException",
		},
		ReadOnly: {"XMinioReadOnly", "ReadOnly"},
		Denied: {
			"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired", "AccountProblem",
			"AllAccessDisabled", "AuthorizationHeaderMalformed", "NotSignedUp", "InvalidSecurity", "UnauthorizedAccess", "AuthFailure",
			"MissingSecurityHeader", "OptInRequired", "Forbidden", "UserSuspended", "InvalidPayer",
			"XAdminUserNotFound", // versitygw's InvalidAccessKeyId, a 404
			"KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException",
			"BadRequest", // the SDK's word for 400 without a body: what S3 says to HEAD with a token that has expired
		},
		Unavailable: {"RequestTimeout", "InternalError", "OperationAborted", "ClientDisconnected", "IncompleteBody"},
		// Requests that we made, and that no content could make right.
		Refused: {
			"InvalidArgument", "InvalidRequest", "InvalidURI", "InvalidTag", "InvalidDigest", "InvalidPart", "InvalidPartOrder",
			"InvalidStorageClass", "InvalidEncryptionAlgorithmError", "InvalidLocationConstraint", "IllegalLocationConstraintException",
			"EntityTooSmall", "EntityTooLarge", "KeyTooLongError", "XMinioInvalidObjectName", "MetadataTooLarge", "RequestHeaderSectionTooLarge",
			"MaxMessageLengthExceeded", "MalformedXML", "MissingContentMD5", "MissingContentLength", "MissingRequestBodyError", "UnexpectedContent",
			"NotImplemented", "MethodNotAllowed", "UnsupportedOperation", "XNotImplemented", "XAmzContentSHA256Missing", "InvalidRequestParameter",
			"AuthorizationQueryParametersError", "ObjectLocked", "InvalidRetentionPeriod",
		},
	} {
		for _, code := range codes {
			all[code] = kind
		}
	}
	return all
}()

// AsksPatience reports whether S3 asks for fewer requests, and not only for another try.
func AsksPatience(code string, status int) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded":
		return true
	}
	return status == http.StatusTooManyRequests
}

// OfS3 sorts an error that S3 gave as an answer to an operation, by its code and, for answers
// without a body, by the status (Amazon S3 API Reference, "Error responses"). ok is false for
// what is about one object; it is never so for a request that we made, and the store does not
// take: that is no failure of any content.
func OfS3(operation, code string, status int) (k Kind, ok bool) {
	switch operation {
	case "UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "AbortMultipartUpload", "ListParts":
		if status == http.StatusNotFound && (code == "" || code == "UnknownError" || code == "NotFound") {
			return "", false // the upload has ended
		}
	}
	if k, known := ofS3[code]; known {
		return k, k != ""
	}
	if k, ok = ofStatus(code, status); !ok {
		k = ""
	}
	return k, ok
}

// ofStatus sorts an answer of S3 whose code says nothing. status is 0 for one of the answers
// to a request about several keys.
func ofStatus(code string, status int) (k Kind, ok bool) {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return Denied, true
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return Missing, true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return Overloaded, true
	case http.StatusInsufficientStorage:
		return Full, true
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusExpectationFailed: // which is not asked for again
		return Unavailable, true
	case http.StatusNotFound, http.StatusPreconditionFailed, http.StatusNotModified:
		return "", false
	case http.StatusNotImplemented:
		return Refused, true
	case 0:
		return Refused, code != ""
	}
	if status >= http.StatusInternalServerError {
		return Unavailable, true
	}
	return Refused, status >= http.StatusBadRequest
}
