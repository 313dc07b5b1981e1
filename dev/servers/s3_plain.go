package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/farol-preservation/farol/internal/devstack"
)

// servePlain serves the gateway without TLS until ctx ends. Requests are passed on as they
// are, since their signatures cover the host that browsers name.
func servePlain(ctx context.Context, s devstack.S3Settings) error {
	gateway := devstack.Gateway{Endpoint: "https://" + s.Addr, CAFile: s.CertFile}
	transport, err := gateway.Transport()
	if err != nil {
		return err
	}
	proxy, err := gateway.Proxy(transport)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.Plain)
	if err != nil {
		return fmt.Errorf("serve S3 to browsers: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: proxy}
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
