package console_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	chrome "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/storage/setup"
)

// tab is a new browser in which a new person of an institution has signed in.
func (s *site) tab(base, role, institution string) *chrome.Tab {
	s.t.Helper()
	p := s.in(role, institution).person
	secret := must.Get(s.people.MakeLink(context.Background(), p.ID, people.SignIn))(s.t)
	b := chrome.Open(s.t, base)
	b.SignIn(people.LinkPath(people.SignIn, secret))
	b.Problems() // there is no first page yet
	return b
}

// tarFile writes a bag into a file.
func tarFile(t *testing.T, name string, spec bagtest.Spec) (path string, size int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	f := must.Get(os.Create(path))(t)
	w := bufio.NewWriter(f)
	must.Do(t, spec.WriteTar(w))
	must.Do(t, w.Flush())
	info := must.Get(f.Stat())(t)
	must.Do(t, f.Close())
	return path, info.Size()
}

// A depositor is told what is wrong before a byte is uploaded; loses the connection in the
// middle of a good bag, and goes on with it in another browser; and sees what becomes of it.
// Nothing of the bag passes through the server.
func TestABagIsDepositedWithABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	line := testenv.NewProxy(t, strings.TrimPrefix(testenv.S3(t).Plain, "http://")) // to the bucket
	front := testenv.NewProxy(t, strings.TrimPrefix(s.url, "http://"))              // to the server
	base := "http://" + front.Addr()
	bucket := s.receives("http://" + line.Addr())
	must.Do(t, setup.AllowUploads(t.Context(), bucket.Conn(), base))
	b := s.tab(base, registry.RoleInstitutionalUser, "test.edu")
	b.Go("/deposit")

	bad, _ := tarFile(t, "bad <b>.tar", bagtest.Spec{
		Unlisted: []bagtest.File{{Path: "data/<img src=x onerror=alert(1)>", Size: 10}}, Tags: []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: bagtest.Omit}},
	})
	b.Drop(bad)
	b.Shows("This bag is not valid: 3 errors. Nothing was uploaded.")
	b.Shows("Required tag Title in file aptrust-info.txt is missing.")
	b.Shows("File data/<img src=x onerror=alert(1)> is not in manifest")
	b.Screenshot("findings")
	if line.Connections() != 0 {
		t.Error("a bag that is not valid was sent")
	}

	good, size := tarFile(t, "good.tar", bagtest.Spec{Files: []bagtest.File{
		{Path: "data/" + strings.Repeat("a long name, ", 20), Size: 20 << 20}, {Path: "data/grüße", Size: 13 << 20}, {Path: "data/small", Size: 5},
	}})
	b.Choose("#tar", good)
	b.Shows("The bag looks valid: 9 files")
	b.Shows("The digests of its files are checked after the upload.")
	line.Delay(25 * time.Millisecond) // its long parts take ten seconds and more, so they are on their way when the line is cut
	b.Click("button", "Upload")
	testenv.Eventually(t, "the last part, which is short, has arrived", func() bool {
		for u := range bucket.OpenUploads(t.Context()) {
			sent, err := bucket.SentParts(t.Context(), u)
			return err == nil && len(sent) > 0
		}
		return false
	})
	b.Expect(100, "net::ERR_", line.Addr())              // of the connection that is cut,
	b.Expect(100, "blocked by CORS policy", line.Addr()) // maybe while the browser asked whether it may send
	line.Cut()
	b.Shows("The receiving bucket does not answer. It is tried again.")
	b.Screenshot("uploading")
	b.Click("button", "Pause")
	b.Shows("Paused.")

	begun := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'deposits.begin'`)
	line.Resume()
	other := s.tab(base, registry.RoleInstitutionalAdmin, "test.edu")
	other.Go("/deposit")
	other.Shows("Uploads that are not finished")
	other.Choose("#tar", good)
	other.Shows("The bag looks valid")
	before := line.Bytes()
	other.Click("button", "Upload")
	other.Shows("The bag has arrived. Item ")
	if again := line.Bytes() - before; again > size-500<<10 {
		t.Errorf("after the connection came back, %d bytes of %d were sent", again, size)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'deposits.begin'`); n != 1 || begun != 1 {
		t.Errorf("%d uploads were begun", n)
	}
	if o, err := bucket.Head(t.Context(), "good.tar"); err != nil || o.Size != size {
		t.Errorf("%+v, %v", o, err)
	}
	if n := front.Bytes(); n > 4<<20 {
		t.Errorf("%d bytes passed through the server", n)
	}
	id := ask[int64](s, `SELECT id FROM work_items WHERE name = 'good.tar'`)
	s.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, id)
	other.Shows(fmt.Sprintf("Item %d is Failed at Receive. Its page says why, and what to do.", id))
	b.Expect(2, "status of 404", "partNumber=") // of the upload that is no more, in two lanes
	b.Click("button", "Resume")
	b.Shows("This upload was finished or given up elsewhere.")
}
