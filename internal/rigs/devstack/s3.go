package devstack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// region is what the gateway says that it is in; signatures name it.
const region = "us-east-1"

// S3Settings are what the gateway's process gets to know.
type S3Settings struct {
	Addr            string        `json:"addr"`  // host:port
	Plain           string        `json:"plain"` // the same without TLS, for browsers, which do not trust our authority
	Dir             string        `json:"dir"`
	CertFile        string        `json:"cert_file"`
	KeyFile         string        `json:"key_file"`
	AccessKeyID     string        `json:"access_key_id"`
	SecretAccessKey string        `json:"secret_access_key"`
	Region          string        `json:"region"`
	RestoreDelay    time.Duration `json:"restore_delay"` // nanoseconds
	Log             string        `json:"log"`           // file for a line for each request; "": none
}

func (s *Stack) startS3(ctx context.Context) error {
	settings := S3Settings{
		Dir:         filepath.Join(s.dir, "s3"),
		CertFile:    filepath.Join(s.dir, "s3", "server.pem"),
		KeyFile:     filepath.Join(s.dir, "s3", "server.key"),
		AccessKeyID: s.secrets.AccessKeyID, SecretAccessKey: s.secrets.SecretAccessKey, Region: region,
		RestoreDelay: s.options.RestoreDelay,
	}
	if s.options.S3Log {
		settings.Log = filepath.Join(s.dir, "log", "s3-requests.log")
	}
	caFile := filepath.Join(s.dir, "s3", "ca.pem")
	if _, err := os.Stat(settings.CertFile); errors.Is(err, os.ErrNotExist) {
		if err := MakeCertificates(caFile, settings.CertFile, settings.KeyFile); err != nil {
			return fmt.Errorf("make the certificates: %w", err)
		}
	}
	run := func(ctx context.Context, addrs []string) (*child, error) {
		settings.Addr, settings.Plain = addrs[0], addrs[1]
		return s.launch(ctx, S3, "s3", settings)
	}
	addrs, _, err := s.serve(ctx, run, "s3", "s3-plain")
	if err != nil {
		return err
	}
	s.S3Plain = "http://" + addrs[1]
	s.S3Endpoint, s.S3CAFile, s.Region = "https://"+addrs[0], caFile, region
	s.AccessKeyID, s.SecretAccessKey = s.secrets.AccessKeyID, s.secrets.SecretAccessKey
	return nil
}

// MakeCertificates writes an authority and a certificate for this machine's own
// names, each good for ten years. The authority's key is thrown away: it has
// signed all that it ever will. The certificate comes last, since its presence
// says that the rest is there.
func MakeCertificates(caFile, certFile, keyFile string) error {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Farol on this machine"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		DNSNames:    []string{"localhost", "*.localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{caFile, "CERTIFICATE", caDER}, {keyFile, "PRIVATE KEY", keyDER}, {certFile, "CERTIFICATE", certDER}} {
		if err := writeFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})); err != nil {
			return err
		}
	}
	return nil
}

// Gateway is an S3 service, and who may use it.
type Gateway struct {
	Endpoint        string // URL, for path-style addresses
	CAFile          string // PEM of the authority to trust; "": those of the machine
	AccessKeyID     string
	SecretAccessKey string
	Region          string
}

// Gateway is the S3 service of the stack.
func (s *Stack) Gateway() Gateway {
	return Gateway{Endpoint: s.S3Endpoint, CAFile: s.S3CAFile, AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey, Region: s.Region}
}

// GatewayOf is the service that settings of Farol name, as in [Stack.Env].
func GatewayOf(settings map[string]string) Gateway {
	return Gateway{
		Endpoint: settings["FAROL_S3_ENDPOINT"], CAFile: settings["FAROL_S3_CA_FILE"], Region: settings["AWS_REGION"],
		AccessKeyID: settings["AWS_ACCESS_KEY_ID"], SecretAccessKey: settings["AWS_SECRET_ACCESS_KEY"],
	}
}

// Transport trusts the service, and passes on the bytes as they come.
func (g Gateway) Transport() (*http.Transport, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if g.CAFile != "" {
		pem, err := os.ReadFile(g.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the service's authority: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", g.CAFile)
		}
	}
	return &http.Transport{TLSClientConfig: trust, DisableCompression: true, MaxIdleConnsPerHost: 32}, nil
}

// Client is a client of the SDK's own with the SDK's defaults, as depositors have it. It uses
// none of Farol's code.
func (g Gateway) Client(transport *http.Transport, options ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &g.Endpoint, Region: g.Region, UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: g.AccessKeyID, SecretAccessKey: g.SecretAccessKey}, nil
		}),
	}, options...)
}

// Proxy passes requests on as they are: their signatures cover the host that clients name.
func (g Gateway) Proxy(transport *http.Transport) (*httputil.ReverseProxy, error) {
	to, err := url.Parse(g.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("read the service's address: %w", err)
	}
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
	}}, nil
}
