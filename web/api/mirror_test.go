package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api"
)

// What nsqd has is answered as it was last, while it is read again for those who ask later:
// nobody waits for nsqd but who asks first.
func TestMirrorIsReadInTheBackground(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	held := make(chan struct{})
	s := newSite(t, func(a *api.API) {
		a.Mirror = func(context.Context) (record.MirrorView, error) {
			n := reads.Add(1)
			if n > 1 {
				<-held
			}
			return record.MirrorView{Known: true, Topics: []record.MirrorTopic{{Topic: "t", Depth: n}}}, nil
		}
	})
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	depth := func() int64 {
		var v record.MirrorView
		a := o.wants(200, "GET", "/api/v1/mirror", nil)
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || len(v.Topics) != 1 {
			t.Fatal(err, a.body)
		}
		return v.Topics[0].Depth
	}
	testenv.Eventually(t, "nsqd to be read again", func() bool { return depth() == 1 && reads.Load() == 2 })
	if n := depth(); n != 1 {
		t.Errorf("while it is read again, depth is %d", n)
	}
	close(held)
	testenv.Eventually(t, "the newer figures", func() bool { return depth() == 2 })
	if a := newSite(t).in("operator@archive.org", registry.RoleOperator, "").wants(200, "GET", "/api/v1/mirror", nil); !strings.Contains(a.body, `"known":false`) || !strings.Contains(a.body, "FAROL_NSQD_HTTP_ADDR") {
		t.Error(a.body)
	}
}
