package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
)

// receive gives the institutions receiving buckets, and the server the way to them.
func (s *site) receive() {
	s.t.Helper()
	at := testenv.S3(s.t)
	client := storage.NewClient(storage.Options{})
	s.t.Cleanup(client.Close)
	open := func(name string) (*storage.Bucket, error) {
		return client.Bucket(storage.Target{
			Bucket: name, Endpoint: at.Endpoint, Region: at.Region, CAFile: at.CAFile, PathStyle: true,
			AccessKeyID: at.AccessKeyID, SecretAccessKey: storage.Secret(at.SecretAccessKey),
		})
	}
	for _, in := range []*record.Institution{&s.test, &s.other} {
		in.ReceivingBucket = at.Prefix + in.Identifier
		s.exec(`UPDATE institutions SET receiving_bucket = $2 WHERE id = $1`, in.ID, in.ReceivingBucket)
		b, err := open(in.ReceivingBucket)
		if err == nil {
			err = b.Create(s.t.Context())
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.api.Deposits = api.Deposits{Bucket: open, Public: open, Endpoint: at.Endpoint, MaxFiles: bag.DefaultMaxFiles}
}

// receiving is a receiving bucket.
func (s *site) receiving(in record.Institution) *storage.Bucket {
	s.t.Helper()
	b := must.Get(s.api.Deposits.Bucket(in.ReceivingBucket))(s.t)
	return b
}

// depositor is a person with a tar to deposit.
type depositor struct {
	*caller

	name    string
	content []byte
	id      string
}

func (c *caller) deposits(name string, content []byte) *depositor {
	c.s.t.Helper()
	d := &depositor{caller: c, name: name, content: content}
	var begun struct {
		ID       string `json:"id"`
		PartSize int64  `json:"part_size"`
	}
	c.reads(c.wants(http.StatusCreated, "POST", "/api/v1/deposits", d.body()), &begun)
	if begun.PartSize != storage.SignedPartSize(int64(len(content))) || begun.ID == "" {
		c.s.t.Fatalf("%+v", begun)
	}
	d.id = begun.ID
	return d
}

func (d *depositor) body(more ...any) map[string]any {
	b := map[string]any{"name": d.name, "size": len(d.content)}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1] //nolint:forcetypeassert,errcheck // of a test
	}
	return b
}

func (d *depositor) named() map[string]any { return map[string]any{"name": d.name} }

func (d *depositor) path(action string) string { return "/api/v1/deposits/" + d.id + action }

func (d *depositor) query() string { return d.path("") + "?name=" + url.QueryEscape(d.name) }

func (d *depositor) part(number int) []byte {
	size := int(storage.SignedPartSize(int64(len(d.content))))
	return d.content[(number-1)*size : min(number*size, len(d.content))]
}

// sends uploads parts as a page does.
func (d *depositor) sends(numbers ...int) (status int) {
	t := d.s.t
	t.Helper()
	var wanted []map[string]any
	for _, n := range numbers {
		sum := sha256.Sum256(d.part(n))
		wanted = append(wanted, map[string]any{"number": n, "sha256": base64.StdEncoding.EncodeToString(sum[:])})
	}
	var signed struct {
		Parts []struct {
			Number      int
			URL, SHA256 string
		}
	}
	d.reads(d.wants(http.StatusOK, "POST", d.path("/parts"), d.body("parts", wanted)), &signed)
	pem := must.Get(os.ReadFile(testenv.S3(t).CAFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	for _, p := range signed.Parts {
		r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPut, p.URL, bytes.NewReader(d.part(p.Number))))(t)
		r.Header.Set("X-Amz-Checksum-Sha256", p.SHA256)
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text := must.Get(io.ReadAll(answer.Body))(t)
		answer.Body.Close() //nolint:errcheck // it was read
		if status = answer.StatusCode; status != http.StatusOK {
			t.Logf("part %d: %d %s", p.Number, status, text)
		}
	}
	return status
}

func noise(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// outlineOf is what a page sends of a tar to have it judged.
func outlineOf(t *testing.T, tar []byte) []byte {
	t.Helper()
	outline := must.Get(bagtest.Outline(tar))(t)
	return zipped(t, outline)
}

func zipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type deposited struct {
	Name, ETag string
	Size       int64
	Item       *int64
}

// A bag goes to the receiving bucket in parts, is taken up again after half of them, and is
// an item as soon as it is whole. The reader of the bucket makes no second one.
func TestABagIsDepositedInParts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	d := u.deposits("a bag+ö.tar", noise(40<<20))
	if d.sends(3, 1) != http.StatusOK {
		t.Fatal("parts were not taken")
	}
	u.wants(http.StatusConflict, "POST", d.path("/complete"), d.body())

	again := s.in("colleague@archive.org", registry.RoleInstitutionalAdmin, "test.edu")
	var open struct {
		Items []struct{ ID, Name string }
	}
	again.reads(again.wants(http.StatusOK, "GET", "/api/v1/deposits", nil), &open)
	if len(open.Items) != 1 || open.Items[0].ID != d.id || open.Items[0].Name != d.name {
		t.Fatalf("%+v", open)
	}
	d.caller = again
	var sent struct {
		Parts []struct {
			Number int
			Size   int64
			SHA256 string
		}
	}
	again.reads(again.wants(http.StatusOK, "GET", d.query(), nil), &sent)
	sum := sha256.Sum256(d.part(3))
	if len(sent.Parts) != 2 || sent.Parts[1].Number != 3 || sent.Parts[1].Size != 8<<20 || sent.Parts[1].SHA256 != base64.StdEncoding.EncodeToString(sum[:]) {
		t.Fatalf("%+v", sent)
	}
	if d.sends(2) != http.StatusOK {
		t.Fatal("part 2 was not taken")
	}
	u.wants(http.StatusConflict, "POST", d.path("/complete"), d.body("size", len(d.content)-1))
	var done, twice deposited
	again.reads(again.wants(http.StatusOK, "POST", d.path("/complete"), d.body()), &done)
	again.reads(again.wants(http.StatusOK, "POST", d.path("/complete"), d.body()), &twice)
	if done.Item == nil || twice.Item != nil || twice.ETag != done.ETag || done.Size != 40<<20 || done.Name != d.name {
		t.Fatalf("%+v, then %+v", done, twice)
	}
	var item struct{ Name, ETag, Stage string }
	u.reads(u.wants(http.StatusOK, "GET", fmt.Sprint("/api/v1/items/", *done.Item), nil), &item)
	if item.Name != d.name || item.Stage != "Receive" || item.ETag != done.ETag {
		t.Errorf("%+v", item)
	}
	s.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, *done.Item)
	now := must.Get(s.registry.Now(t.Context()))(t)
	for o, err := range s.receiving(s.test).List(t.Context(), "", "") { // as the reader of the bucket does
		if err != nil {
			t.Fatal(err)
		}
		u := registry.Upload{Key: o.Key, ETag: o.ETag, Size: o.Size, LastModified: o.LastModified}
		if ids, err := s.registry.CreateIngests(t.Context(), s.test, now, []registry.Upload{u}); len(ids) != 0 || err != nil {
			t.Errorf("the reader of the bucket makes the items %v, %v", ids, err)
		}
	}
	got := ask[string](s, `SELECT string_agg(operation || ' ' || outcome || ' ' || subject_id || ' ' || actor, ', ' ORDER BY id) FROM actions WHERE subject_type = 'deposit'`)
	want := "deposits.begin done a bag+ö.tar u@archive.org, deposits.complete refused a bag+ö.tar u@archive.org, deposits.complete refused a bag+ö.tar u@archive.org, " +
		"deposits.complete done a bag+ö.tar colleague@archive.org, deposits.complete done a bag+ö.tar colleague@archive.org"
	if got != want {
		t.Errorf("on record:\n%s\nwant\n%s", got, want)
	}
}

// What another institution uploads is for others like what there is not, to the byte.
func TestUploadsOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	mine := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu").deposits("bag.tar", noise(1000))
	mine.sends(1)
	thief := s.in("thief@archive.org", registry.RoleInstitutionalAdmin, "other.edu")
	other := &depositor{caller: thief, name: mine.name, content: mine.content, id: mine.id}
	none := &depositor{caller: thief, name: mine.name, content: mine.content, id: "00000000-0000-4000-8000-000000000000"}
	same := func(what string, a, b answer) {
		t.Helper()
		if a.status != http.StatusNotFound || a.status != b.status || a.body != b.body {
			t.Errorf("%s: %d %s, and of what there is not: %d %s", what, a.status, a.body, b.status, b.body)
		}
	}
	same("show", thief.do("GET", other.query(), nil), thief.do("GET", none.query(), nil))
	same("complete", thief.do("POST", other.path("/complete"), other.body()), thief.do("POST", none.path("/complete"), none.body()))
	same("abort", thief.do("POST", other.path("/abort"), other.named()), thief.do("POST", none.path("/abort"), none.named()))
	of := func(institution string, c *depositor) (list []answer) {
		body := c.body("institution", institution)
		parts := c.body("institution", institution, "parts", []map[string]any{{"number": 1, "sha256": strings.Repeat("A", 43) + "="}})
		return []answer{
			thief.do("GET", "/api/v1/deposits?institution="+institution, nil), thief.do("POST", "/api/v1/deposits", body),
			thief.do("GET", c.query()+"&institution="+institution, nil), thief.do("POST", c.path("/parts"), parts),
			thief.do("POST", c.path("/complete"), body), thief.do("POST", c.path("/abort"), map[string]any{"name": c.name, "institution": institution}),
			thief.do("POST", "/api/v1/deposits/check", map[string]any{"name": c.name, "size": 0, "outline": "AA==", "institution": institution}),
		}
	}
	nobody := of("nobody.edu", none)
	for i, a := range of("test.edu", other) {
		same(fmt.Sprint("request ", i), a, nobody[i])
	}
	if status := other.sends(1); status != http.StatusNotFound {
		t.Errorf("a part for an upload of another institution: %d", status)
	}
	if list := thief.wants(http.StatusOK, "GET", "/api/v1/deposits", nil); strings.Contains(list.body, mine.id) {
		t.Errorf("the list of uploads has that of another institution: %s", list.body)
	}
	mine.wants(http.StatusOK, "POST", mine.path("/complete"), mine.body())
}

// Staff deposits for any institution that it names.
func TestStaffNamesTheInstitutionOfABag(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	staff := s.in("s@archive.org", registry.RoleAdmin, "")
	staff.wants(http.StatusBadRequest, "POST", "/api/v1/deposits", map[string]any{"name": "bag.tar", "size": 7})
	staff.wants(http.StatusNotFound, "POST", "/api/v1/deposits", map[string]any{"name": "bag.tar", "size": 7, "institution": "nobody.edu"})
	staff.wants(http.StatusCreated, "POST", "/api/v1/deposits", map[string]any{"name": "bag.tar", "size": 7, "institution": "other.edu"})
	for u, err := range s.receiving(s.other).OpenUploads(t.Context()) {
		if err != nil || u.Key != "bag.tar" {
			t.Errorf("%+v, %v", u, err)
		}
	}
	s.exec(`UPDATE institutions SET state = 'D' WHERE id = $1`, s.other.ID)
	staff.wants(http.StatusConflict, "POST", "/api/v1/deposits", map[string]any{"name": "bag.tar", "size": 7, "institution": "other.edu"})
}

func TestNamesThatNoDepositMayHave(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	d := u.deposits("good.tar", noise(1000))
	names := []string{
		"bag.zip", ".tar", "...tar", "a/b.tar", "/bag.tar", "../bag.tar", `a\b.tar`, "a\nb.tar", "~.tar", "b\u0000.tar", "\ufffd.tar", strings.Repeat("x", 252) + ".tar", "",
	}
	for _, name := range names {
		bad := &depositor{caller: u, name: name, content: d.content, id: d.id}
		parts := bad.body("parts", []map[string]any{{"number": 1, "sha256": strings.Repeat("A", 43) + "="}})
		for i, a := range []answer{
			u.do("POST", "/api/v1/deposits", bad.body()), u.do("GET", bad.query(), nil), u.do("POST", bad.path("/parts"), parts),
			u.do("POST", bad.path("/complete"), bad.body()), u.do("POST", bad.path("/abort"), bad.named()),
		} {
			if a.status != http.StatusBadRequest {
				t.Errorf("%q, request %d: %d %s", name, i, a.status, a.body)
			}
		}
	}
	for _, size := range []int64{0, -1, storage.MaxObject + 1} {
		u.wants(http.StatusBadRequest, "POST", "/api/v1/deposits", map[string]any{"name": "a.tar", "size": size})
	}
	for _, p := range []map[string]any{{"number": 2, "sha256": strings.Repeat("A", 43) + "="}, {"number": 1, "sha256": strings.Repeat("A", 44)}, {"number": 0, "sha256": strings.Repeat("A", 43) + "="}} {
		u.wants(http.StatusBadRequest, "POST", d.path("/parts"), d.body("parts", []any{p}))
	}
	u.wants(http.StatusBadRequest, "POST", d.path("/parts"), d.body("parts", slices.Repeat([]any{map[string]any{"number": 1, "sha256": strings.Repeat("A", 43) + "="}}, 101)))
}

// A tar that waits in the receiving bucket is not replaced by accident, and an upload that is
// given up leaves nothing.
func TestADepositReplacesNothingByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	first, second := u.deposits("bag.tar", noise(1000)), u.deposits("bag.tar", noise(2000))
	first.sends(1)
	second.sends(1)
	u.wants(http.StatusOK, "POST", first.path("/complete"), first.body())
	for what, a := range map[string]answer{
		"a new upload":          u.do("POST", "/api/v1/deposits", second.body()),
		"one that had begun":    u.do("POST", second.path("/complete"), second.body()),
		"that again, unchanged": u.do("POST", second.path("/complete"), second.body("replace", false)),
	} {
		if a.status != http.StatusConflict || !strings.Contains(a.text("detail"), "is in the receiving bucket already") {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	third := &depositor{caller: u, name: "bag.tar", content: noise(3000)}
	var begun struct{ ID string }
	u.reads(u.wants(http.StatusCreated, "POST", "/api/v1/deposits", third.body("replace", true)), &begun)
	third.id = begun.ID
	u.wants(http.StatusNoContent, "POST", third.path("/abort"), third.named())
	u.wants(http.StatusNotFound, "POST", third.path("/abort"), third.named())
	u.wants(http.StatusNotFound, "GET", third.query(), nil)
	u.wants(http.StatusNotFound, "POST", third.path("/complete"), third.body("replace", true))
	var done deposited
	u.reads(u.wants(http.StatusOK, "POST", second.path("/complete"), second.body("replace", true)), &done)
	if o, err := s.receiving(s.test).Head(t.Context(), "bag.tar"); err != nil || o.Size != 2000 || o.ETag != done.ETag || done.Item == nil {
		t.Errorf("%+v, %v; %+v", o, err, done)
	}
}

// checked is the verdict of the server on a tar.
func (c *caller) checked(name string, tar []byte) (v bag.Verdict) {
	c.s.t.Helper()
	c.reads(c.wants(http.StatusOK, "POST", "/api/v1/deposits/check", map[string]any{"name": name, "size": len(tar), "outline": outlineOf(c.s.t, tar)}), &v)
	return v
}

// The findings are those of farol validate, word for word.
func TestABagIsJudgedBeforeItIsUploaded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	for name, spec := range map[string]bagtest.Spec{
		"good": {Name: "good"},
		"bad": {
			Name: "bad", Files: []bagtest.File{{Path: "data/a", Size: 100}, {Path: "data/<script>alert(1)</script>", Size: 100}}, Leave: []string{"data/a"},
			Unlisted: []bagtest.File{{Path: "data/b\x07", Size: 10}}, Tags: []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: bagtest.Omit}},
		},
	} {
		tar := must.Get(spec.Bytes())(t)
		read := must.Get(bag.Read(t.Context(), bytes.NewReader(tar), bag.ReadOptions{}))(t)
		want, got := read.Validate(nil), u.checked(name+".tar", tar)
		if got.Unread == 0 {
			t.Errorf("%s: the verdict does not say that digests were not compared", name)
		}
		got.Unread = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-tar +outline)\n%s", name, diff)
		}
	}
	if v := u.checked("~.tar", nil); v.Valid || v.Errors[0].Code != "illegal-name" {
		t.Errorf("%+v", v)
	}
	for what, outline := range map[string][]byte{
		"no gzip": []byte("x"), "an empty one": zipped(t, nil), "cut": outlineOf(t, make([]byte, 10240))[:20], "a bomb": zipped(t, make([]byte, 1<<20)),
	} {
		a := u.do("POST", "/api/v1/deposits/check", map[string]any{"name": "bag.tar", "size": 10240, "outline": outline})
		if a.status != http.StatusBadRequest || !strings.Contains(a.text("detail"), "cannot be judged") {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
}

// A bag of 100,000 files is judged by a request that the server takes.
func TestABagOfManyFilesIsJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.receive()
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	var files []bagtest.File
	n := testenv.Soak(100_000)
	for i := range n {
		files = append(files, bagtest.File{Path: fmt.Sprintf("data/photographs/%03d/photograph %06d.tif", i/1000, i), Size: 20})
	}
	tar := must.Get(bagtest.Spec{Files: files}.Bytes())(t)
	if v := u.checked("sample-bag.tar", tar); !v.Valid || v.Files != n+6 {
		t.Errorf("%+v", v)
	}
	s.api.Deposits.MaxFiles = 1000 // of the pipeline
	if v := u.checked("sample-bag.tar", tar); v.Valid || v.Errors[0].Code != "too-many-files" {
		t.Errorf("%+v", v.Errors)
	}
	testenv.Soaked(t, n, "files of a bag judged by its outline")
}

// Without settings for S3 the server says what is missing.
func TestAServerWithoutBucketsTakesNoDeposits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	u := s.in("u@archive.org", registry.RoleInstitutionalUser, "test.edu")
	a := u.wants(http.StatusServiceUnavailable, "POST", "/api/v1/deposits", map[string]any{"name": "bag.tar", "size": 7})
	if !strings.Contains(a.text("detail"), "AWS_ACCESS_KEY_ID") {
		t.Errorf("%s", a.body)
	}
}
