package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"time"

	"github.com/farol-preservation/farol/internal/devstack"
)

// servePlain serves the gateway without TLS until ctx ends. Requests are passed on as they
// are, since their signatures cover the host that browsers name.
func servePlain(ctx context.Context, s devstack.S3Settings) error {
	pem, err := os.ReadFile(s.CertFile)
	if err != nil {
		return fmt.Errorf("read the gateway's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.Plain)
	if err != nil {
		return fmt.Errorf("serve S3 to browsers: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: &httputil.ReverseProxy{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableCompression: true, MaxIdleConnsPerHost: 8},
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", s.Addr, r.In.Host
			},
		},
	}
	go func() {
		<-ctx.Done()
		server.Close() //nolint:errcheck // the process ends
	}()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "S3 is not served to browsers:", err)
		}
	}()
	return nil
}
