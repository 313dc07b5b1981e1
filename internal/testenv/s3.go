package testenv

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/devstack"
)

// S3Server is an S3 gateway over TLS, with storage classes. Cold objects take
// [RestoreDelay] to restore.
type S3Server struct {
	Endpoint        string // https://127.0.0.1:port, for path-style addresses
	CAFile          string // PEM of the authority to trust
	AccessKeyID     string
	SecretAccessKey string
	Region          string
	Prefix          string // of bucket names, 13 characters; no other test has it
}

// S3 returns the gateway, with a prefix for the buckets of this test. Buckets
// need not be removed.
func S3(t testing.TB) S3Server {
	t.Helper()
	s := stack(t, devstack.S3)
	return S3Server{
		Endpoint: s.S3Endpoint, CAFile: s.S3CAFile, Region: s.Region,
		AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey,
		Prefix: "t" + strings.ToLower(rand.Text()[:11]) + "-",
	}
}
