package devstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

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
