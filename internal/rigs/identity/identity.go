// Package identity stands in for what hands out credentials on platforms: the instance metadata
// service of EC2, the endpoint of containers and the security token service; and for a store that
// takes no others.
package identity

import (
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	// Role is the one that the metadata service has, and that may be assumed.
	Role = "arn:aws:iam::123456789012:role/farol"
	// ExternalID is what it asks for of those who have a key already.
	ExternalID = "archive 7"
	// WebToken is the one that the web identity is proved by.
	WebToken = "a token of the cluster"

	dated = "20060102T150405Z"
)

// A Platform hands out keys that end. Its methods may be called at the same time as any other.
type Platform struct {
	URL string

	server *httptest.Server
	lasts  time.Duration

	mu      sync.Mutex
	keys    map[string]key
	issued  map[string]int // by whom
	refuses bool
	used    map[string]bool
}

type key struct {
	aws.Credentials

	kind string // of those who gave it; "own" is one that does not end
}

// New starts a platform whose keys last for some time. Close ends it.
func New(lasts time.Duration) *Platform {
	p := &Platform{lasts: lasts, keys: map[string]key{}, issued: map[string]int{}, used: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		fmt.Fprint(w, "token")
	})
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{role...}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
			http.Error(w, "no token", http.StatusUnauthorized)
		case r.PathValue("role") == "":
			fmt.Fprint(w, "farol")
		default:
			p.asJSON(w, "instance")
		}
	})
	mux.HandleFunc("GET /container", func(w http.ResponseWriter, _ *http.Request) { p.asJSON(w, "container") })
	mux.HandleFunc("POST /{$}", p.token)
	p.server = httptest.NewServer(mux)
	p.URL = p.server.URL
	return p
}

// Close ends it.
func (p *Platform) Close() { p.server.Close() }

// Key makes one that does not end.
func (p *Platform) Key() aws.Credentials {
	return p.issue("own")
}

// End ends all keys of a kind at once.
func (p *Platform) End(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, k := range p.keys {
		if k.kind == kind {
			delete(p.keys, id)
		}
	}
}

// Refuse has the platform hand out no keys, until it is told otherwise.
func (p *Platform) Refuse(now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = now
}

// Issued counts the keys that were handed out by the instance, the container, a role and the web.
func (p *Platform) Issued(kind string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issued[kind]
}

// Used counts the keys that requests to stores were signed by.
func (p *Platform) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.used)
}

func (p *Platform) issue(kind string) aws.Credentials {
	c := aws.Credentials{AccessKeyID: "ASIA" + rand.Text()[:16], SecretAccessKey: rand.Text(), SessionToken: rand.Text()}
	if kind == "own" {
		c.SessionToken = ""
	} else {
		c.CanExpire, c.Expires = true, time.Now().Add(p.lasts)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[c.AccessKeyID] = key{c, kind}
	p.issued[kind]++
	return c
}

func (p *Platform) refused(w http.ResponseWriter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}
	return p.refuses
}

func (p *Platform) asJSON(w http.ResponseWriter, kind string) {
	if p.refused(w) {
		return
	}
	c := p.issue(kind)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": c.AccessKeyID, "SecretAccessKey": c.SecretAccessKey, "Token": c.SessionToken,
		"Expiration": c.Expires.UTC().Format(time.RFC3339Nano), "LastUpdated": time.Now().UTC().Format(time.RFC3339),
	})
}

// token is the security token service.
func (p *Platform) token(w http.ResponseWriter, r *http.Request) {
	if p.refused(w) {
		return
	}
	action, kind := r.FormValue("Action"), "web"
	proved := r.FormValue("WebIdentityToken") == WebToken
	if action == "AssumeRole" {
		code := p.signed(r, "sts")
		kind, proved = "role", code == "" && r.FormValue("ExternalId") == ExternalID
	}
	if !proved || r.FormValue("RoleArn") != Role {
		answer(w, http.StatusForbidden, "AccessDenied", "not authorized to perform: sts:"+action)
		return
	}
	c := p.issue(kind)
	type result struct {
		XMLName xml.Name
		Result  struct {
			XMLName xml.Name
			Key     struct{ AccessKeyId, SecretAccessKey, SessionToken, Expiration string } `xml:"Credentials"` //nolint:revive // as it is written there
		}
	}
	var out result
	out.XMLName.Local, out.Result.XMLName.Local = action+"Response", action+"Result"
	out.Result.Key.AccessKeyId, out.Result.Key.SecretAccessKey, out.Result.Key.SessionToken = c.AccessKeyID, c.SecretAccessKey, c.SessionToken
	out.Result.Key.Expiration = c.Expires.UTC().Format(time.RFC3339Nano)
	_ = xml.NewEncoder(w).Encode(out)
}

func answer(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, //nolint:gosec // it is no page
		"<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code, message)
}

// Answers refuses a request to a store that is not signed by a key of the platform, and reports that it did.
// Another one is signed by the store's own key, and may be passed on.
func (p *Platform) Answers(w http.ResponseWriter, r *http.Request, own aws.Credentials) bool {
	if code := p.signed(r, "s3"); code != "" {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the key</Message></Error>", code)
		}
		return true
	}
	region := regionOf(r)
	r.Header.Del("X-Amz-Security-Token")
	r.Header.Del("Authorization")
	at, _ := time.Parse(dated, r.Header.Get("X-Amz-Date"))
	if _, err := sign(r, own, "s3", region, r.Header, at); err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	return false
}

// regionOf is the region that a request was signed for.
func regionOf(r *http.Request) string {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	if parts := strings.Split(credential, "/"); len(parts) > 2 {
		return parts[2]
	}
	return ""
}

// signed is the code of S3 for what is wrong with how a request was signed; "" if nothing is.
func (p *Platform) signed(r *http.Request, service string) string {
	authorization := r.Header.Get("Authorization")
	_, credential, _ := strings.Cut(authorization, "Credential=")
	id, _, _ := strings.Cut(credential, "/")
	p.mu.Lock()
	k, known := p.keys[id]
	if known && service == "s3" {
		p.used[id] = true
	}
	p.mu.Unlock()
	at, err := time.Parse(dated, r.Header.Get("X-Amz-Date"))
	switch {
	case !known, err != nil:
		return "InvalidAccessKeyId"
	case k.SessionToken != r.Header.Get("X-Amz-Security-Token"):
		return "InvalidToken"
	case k.CanExpire && time.Now().After(k.Expires):
		return "ExpiredToken"
	}
	_, names, _ := strings.Cut(authorization, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	only := http.Header{}
	for name := range strings.SplitSeq(names, ";") {
		if values := r.Header.Values(name); len(values) > 0 {
			only[http.CanonicalHeaderKey(name)] = values
		}
	}
	if want, err := sign(r, k.Credentials, service, regionOf(r), only, at); err != nil || want != authorization {
		return "SignatureDoesNotMatch"
	}
	return ""
}

// sign signs a request with some of its headers, which get the signature.
func sign(r *http.Request, by aws.Credentials, service, region string, headers http.Header, at time.Time) (string, error) {
	all, length := r.Header, r.ContentLength
	defer func() { r.Header, r.ContentLength = all, length }()
	r.Header = headers
	if n, err := strconv.ParseInt(headers.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	payload := all.Get("X-Amz-Content-Sha256")
	if payload == "" {
		return all.Get("Authorization"), nil // of a service whose requests say nothing of their content
	}
	r.URL.Host = r.Host
	err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(), by, r, payload, service, region, at)
	return headers.Get("Authorization"), err
}
