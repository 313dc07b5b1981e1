package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api"
)

// What workers would claim next is listed in their order, and is left as it is.
func TestItemsThatComeNext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock() // 3.tar is no longer live
	s.exec(`UPDATE work_items SET priority = -1 WHERE name = '2.tar' AND institution_id = $1`, s.other.ID)
	s.exec(`UPDATE work_items SET size = 3::bigint << 30 WHERE name = '1.tar' AND institution_id = $1`, s.test.ID)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	next := func(query string) (names []string) {
		t.Helper()
		var list struct{ Items []record.WorkItem }
		o.reads(o.wants(http.StatusOK, "GET", "/api/v1/items/next"+query, nil), &list)
		for _, w := range list.Items {
			names = append(names, w.Institution+" "+w.Name)
		}
		return names
	}
	if got := next(""); len(got) != 4 || got[0] != "other.edu 2.tar" || got[3] != "test.edu 1.tar" {
		t.Errorf("next come %v", got)
	}
	if got := next("?limit=1"); !slices.Equal(got, []string{"other.edu 2.tar", "test.edu 1.tar"}) {
		t.Errorf("of each pool one: %v", got)
	}
	if got := next("?pool=small%3D*%3Bmax%3D1GiB&pool=large%3D*%3Bmin%3D2GiB&limit=1"); !slices.Equal(got, []string{"other.edu 2.tar", "test.edu 1.tar"}) {
		t.Errorf("of two pools: %v", got)
	}
	if got := next("?pool=late%3DStore"); len(got) != 0 {
		t.Errorf("at Store: %v", got)
	}
	if a := o.wants(http.StatusBadRequest, "GET", "/api/v1/items/next?pool=small", nil); !strings.Contains(a.body, "NAME=STAGES") {
		t.Errorf("a wrong pool: %s", a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE status = 'Started'`); n != 0 {
		t.Errorf("%d items were claimed", n)
	}
	auditor := s.in("auditor@archive.org", registry.RoleAuditor, "")
	auditor.wants(http.StatusOK, "GET", "/api/v1/items/next", nil)
	own := s.in("auditor@test.edu", registry.RoleAuditor, "test.edu")
	own.wants(http.StatusForbidden, "GET", "/api/v1/items/next", nil)
}

// More callers than two at the same time are asked to try again.
func TestItemsThatComeNextAreAskedForByFew(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}, 3), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	s := newSite(t, func(a *api.API) {
		next := a.Next
		a.Next = func(ctx context.Context, pools []string, n int) ([]int64, error) {
			begun <- struct{}{}
			<-end
			return next(ctx, pools, n)
		}
	})
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- o.do("GET", "/api/v1/items/next", nil) }()
		<-begun
	}
	if a := o.do("GET", "/api/v1/items/next", nil); a.code() != "try-later" || a.header.Get("Retry-After") == "" {
		t.Errorf("a third: %d %s", a.status, a.body)
	}
	release()
	for range 2 {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("one of two: %d %s", a.status, a.body)
		}
	}
	o.wants(http.StatusOK, "GET", "/api/v1/items/next", nil)
}
