package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/setup"
	"github.com/farol-preservation/farol/web/api"
)

// receives gives the test's institution a receiving bucket, and the server the way to it.
// Browsers reach it at another address.
func (s *site) receives(public string) *storage.Bucket {
	s.t.Helper()
	at := testenv.S3(s.t)
	client := storage.NewClient(storage.Options{})
	s.t.Cleanup(client.Close)
	open := func(endpoint string) func(string) (*storage.Bucket, error) {
		return func(name string) (*storage.Bucket, error) {
			return client.Bucket(storage.Target{
				Bucket: name, Endpoint: endpoint, Region: at.Region, CAFile: at.CAFile, PathStyle: true,
				AccessKeyID: at.AccessKeyID, SecretAccessKey: storage.Secret(at.SecretAccessKey),
			})
		}
	}
	s.test.ReceivingBucket = at.Prefix + "in"
	s.exec(`UPDATE institutions SET receiving_bucket = $2 WHERE id = $1`, s.test.ID, s.test.ReceivingBucket)
	s.api.Deposits = api.Deposits{Bucket: open(at.Endpoint), Public: open(public), Endpoint: public, MaxFiles: 400_000}
	b, err := s.api.Deposits.Bucket(s.test.ReceivingBucket)
	if err == nil {
		err = b.Create(s.t.Context())
	}
	if err == nil {
		err = setup.AllowUploads(s.t.Context(), b.Conn(), s.url)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// The script of one page may send to the S3 service, and that of no other.
func TestOnlyTheDepositPageReachesTheBucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const public = "https://s3.example.org"
	bucket := s.receives(public)
	u := s.in(registry.RoleInstitutionalUser, "test.edu")
	a := u.sees("/deposit", "Deposit a bag", "aws s3 cp photographs.tar s3://"+s.test.ReceivingBucket+"/ --endpoint-url "+public)
	if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "connect-src 'self' "+public+";") || !strings.Contains(csp, "require-trusted-types-for 'script'") {
		t.Error(csp)
	}
	if csp := u.open("/items").header.Get("Content-Security-Policy"); !strings.Contains(csp, "connect-src 'self';") {
		t.Error(csp)
	}
	if auditor := s.in(registry.RoleAuditor, "test.edu").open("/deposit"); auditor.status != http.StatusForbidden {
		t.Errorf("an auditor may deposit: %d", auditor.status)
	}

	const name = "<img src=x onerror=alert(1)>\u202egpj.tar"
	open := must.Get(bucket.BeginUpload(t.Context(), name, ""))(t)
	a = u.sees("/deposit", "Uploads that are not finished", `\u202egpj.tar`)
	if strings.Contains(a.text, "<img src=x") {
		t.Error("the name is not escaped")
	}
	if form := a.form(t, "deposits.abort"); form.Get("id") != open.ID || u.send("/do/deposits.abort", form).path != "/deposit" {
		t.Errorf("%v", form)
	}
	u.sees("/deposit").lacks(t, "Uploads that are not finished")

	staff := s.in(registry.RoleAdmin, "").sees("/deposit", "Institution", "s3://RECEIVING-BUCKET/")
	staff.lacks(t, "Uploads that are not finished")
	s.api.Deposits = api.Deposits{}
	u.sees("/deposit", "This server has no connection to the receiving buckets")
}
