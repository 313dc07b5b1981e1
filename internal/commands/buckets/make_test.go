package buckets

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/setup"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// through is a bucket of the gateway's that a store in front answers for as it likes: instead
// reports whether it has.
func through(t *testing.T, instead func(w http.ResponseWriter, r *http.Request) bool) place {
	t.Helper()
	s := testenv.S3(t)
	gateway := s.Proxy(t)
	at := testenv.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !instead(w, r) {
			gateway.ServeHTTP(w, r)
		}
	}))
	return place{names: []string{"a"}, setting: "THE_SETTING", service: "THE_SERVICE", key: "THE_KEY", target: storage.Target{
		Bucket: s.Prefix + "a", Endpoint: at, AccessKeyID: s.AccessKeyID, SecretAccessKey: storage.Secret(s.SecretAccessKey), PathStyle: true,
	}}
}

func answers(w http.ResponseWriter, status int, body string) bool {
	w.WriteHeader(status)
	_, err := io.WriteString(w, body)
	return err == nil
}

// A store that says yes and does nothing is found out.
func TestAStoreThatDoesNothingIsFoundOut(t *testing.T) {
	t.Parallel()
	p := through(t, func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPut && r.URL.Query().Has("versioning") && answers(w, http.StatusOK, "")
	})
	p.kept = true
	r := maker{want: setup.Protection{Versions: true}}.all(t.Context(), []place{p})[0]
	if r.State != failed || !strings.Contains(r.Error, "has accepted the request, and the bucket keeps no versions") || !strings.Contains(r.Next, "THE_SERVICE") {
		t.Errorf("%+v", r)
	}
}

// A store that has no CORS rules lets its own settings say from where browsers upload: MinIO.
func TestAStoreWithoutCORSRulesIsNoFailure(t *testing.T) {
	t.Parallel()
	p := through(t, func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPut && r.URL.Query().Has("cors") && answers(w, http.StatusNotImplemented, "<Error><Code>NotImplemented</Code></Error>")
	})
	p.uploads = true
	m := maker{origin: "https://farol.example.org"}
	if r := m.all(t.Context(), []place{p})[0]; r.State != created || !strings.Contains(r.Has, "takes no CORS rules") {
		t.Errorf("%+v", r)
	}
}

// What a store refuses names the setting to change: the name that another account has, the key
// that may not, and the rule that the key may not add.
func TestRefusalsNameTheSetting(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status            int
		query, code, next string
	}{
		{http.StatusConflict, "", "BucketAlreadyExists", "name another bucket in THE_SETTING"},
		{http.StatusForbidden, "", "AccessDenied", "correct THE_KEY, or allow these credentials"},
		{http.StatusForbidden, "cors", "AccessDenied", "allow PutBucketCORS and GetBucketCORS to the key in THE_KEY"},
		{http.StatusBadRequest, "", "TooManyBuckets", "check that the service that THE_SERVICE names answers and takes the request"},
	} {
		p := through(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && strings.TrimSuffix(r.URL.RawQuery, "=") == tc.query && answers(w, tc.status, "<Error><Code>"+tc.code+"</Code></Error>")
		})
		p.uploads = true
		m := maker{origin: "https://farol.example.org"}
		if r := m.all(t.Context(), []place{p})[0]; r.State != failed || !strings.Contains(r.Next, tc.next) {
			t.Errorf("%s: %+v", tc.code, r)
		}
	}
}
