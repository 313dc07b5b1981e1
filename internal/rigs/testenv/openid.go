package testenv

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Client of an [OpenID] provider.
const (
	OpenIDClient = "farol"
	OpenIDSecret = "secret of the client"
)

// OpenID is an OpenID provider that signs in one person without asking. It holds to the
// rules of the authorization code flow with PKCE: a code is good once, and for its verifier.
type OpenID struct {
	URL string

	t      testing.TB
	server *httptest.Server
	keys   map[jose.SignatureAlgorithm]crypto.Signer

	mu     sync.Mutex
	answer OpenIDAnswer
	codes  map[string]url.Values // requests that codes were given for
	asked  url.Values            // the last of them
}

// OpenIDAnswer is what the provider says next.
type OpenIDAnswer struct {
	Claims    map[string]any    // of the ID token, over those that are right; nil values are left out
	Algorithm string            // "": ES256; none, or HS256 with the client's secret, as attackers sign
	Key       crypto.Signer     // nil: one that the provider publishes
	Info      map[string]any    // of the userinfo endpoint
	Back      map[string]string // of the query with which the browser comes back, over what is right
}

// NewOpenID starts a provider, which ends with the test.
func NewOpenID(t testing.TB) *OpenID {
	t.Helper()
	o := &OpenID{t: t, codes: map[string]url.Values{}}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	o.keys = map[jose.SignatureAlgorithm]crypto.Signer{jose.RS256: rsaKey, jose.ES256: NewSigner(t)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", o.configuration)
	mux.HandleFunc("GET /authorize", o.authorize)
	mux.HandleFunc("POST /token", o.token)
	mux.HandleFunc("GET /keys", o.published)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		writeJSON(w, o.answer.Info)
	})
	o.server = httptest.NewServer(mux)
	t.Cleanup(o.server.Close)
	o.URL = o.server.URL
	return o
}

// NewSigner makes a key for ES256.
func NewSigner(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// Answers sets what the provider says from now on.
func (o *OpenID) Answers(a OpenIDAnswer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = a
}

// Asked is the query with which a browser came last.
func (o *OpenID) Asked() url.Values {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// Close ends the provider before the test ends.
func (o *OpenID) Close() { o.server.Close() }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (o *OpenID) configuration(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{
		"issuer": o.URL, "authorization_endpoint": o.URL + "/authorize", "token_endpoint": o.URL + "/token", "jwks_uri": o.URL + "/keys",
		"userinfo_endpoint": o.URL + "/userinfo", "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256", "ES256", "HS256", "none"},
	})
}

func (o *OpenID) published(w http.ResponseWriter, _ *http.Request) {
	var set jose.JSONWebKeySet
	for algorithm, key := range o.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: string(algorithm), Algorithm: string(algorithm), Use: "sig"})
	}
	writeJSON(w, set)
}

// authorize sends the browser back with a code.
func (o *OpenID) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != OpenIDClient || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" {
		http.Error(w, "not as this flow begins", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	code := rand.Text()
	o.codes[code], o.asked = q, q
	answer := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {o.URL}}
	for k, v := range o.answer.Back {
		answer.Set(k, v)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther) //nolint:gosec // the client of a test
}

// token answers a code with an ID token, once.
func (o *OpenID) token(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	asked, known := o.codes[r.FormValue("code")]
	delete(o.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if unescaped, err := url.QueryUnescape(secret); !known || err != nil || id != OpenIDClient || unescaped != OpenIDSecret ||
		r.FormValue("redirect_uri") != asked.Get("redirect_uri") || base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		writeJSON(w, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": o.URL, "aud": OpenIDClient, "sub": "subject 1", "nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
	}
	maps.Copy(claims, o.answer.Claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	writeJSON(w, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": o.signed(claims)})
}

func (o *OpenID) signed(claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		o.t.Error("testenv:", err)
	}
	algorithm, key := jose.ES256, any(o.keys[jose.ES256])
	switch o.answer.Algorithm {
	case "none":
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload) + "."
	case "HS256":
		algorithm, key = jose.HS256, []byte(OpenIDSecret+OpenIDSecret)
	case "RS256":
		algorithm, key = jose.RS256, o.keys[jose.RS256]
	}
	if o.answer.Key != nil {
		key = o.answer.Key
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: string(algorithm)}}, nil)
	if err != nil {
		o.t.Error("testenv:", err)
		return ""
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		o.t.Error("testenv:", err)
		return ""
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		o.t.Error("testenv:", err)
	}
	return text
}
