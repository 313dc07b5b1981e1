package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// runS3 serves the directory of the settings over the S3 API until in ends.
func runS3(ctx context.Context, in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	var s devstack.S3Settings
	if err := devstack.ReadSettings(r, &s); err != nil {
		return err
	}
	ctx, cancel := devstack.UntilEOF(ctx, r)
	defer cancel()
	// The gateway prints to standard output, where only our READY belongs.
	os.Stdout = os.Stderr
	// It makes much garbage of a small live heap; memory is cheap here.
	debug.SetGCPercent(400)

	cold, err := openColdStore(s)
	if err != nil {
		return err
	}
	if err := servePlain(ctx, s); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		served <- embedgw.RunVersityGW(ctx, cold, &embedgw.Config{
			RootUserAccess: s.AccessKeyID, RootUserSecret: s.SecretAccessKey, Region: s.Region,
			Ports: []string{s.Addr}, CertFile: s.CertFile, KeyFile: s.KeyFile,
			MaxConnections: 4096, MaxRequests: 4096, MultipartMaxParts: 10_000,
			Quiet: true, KeepAlive: true, AccessLog: s.Log,
			S3Options: []s3api.Option{s3api.WithOnListen(func() {
				fmt.Fprintln(out, "READY", s.Addr)
			})},
		})
	}()
	select {
	case err = <-served:
	case <-ctx.Done():
		// It waits for connections that clients keep open, and loses nothing
		// when it is cut: an object appears whole or not at all.
		select {
		case err = <-served:
		case <-time.After(500 * time.Millisecond):
		}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve S3: %w", err)
	}
	return nil
}

// openColdStore opens the directory with the metadata of objects in extended
// attributes or, where the file system has none, in files beside the objects. A
// directory stays with what it was begun with.
func openColdStore(s devstack.S3Settings) (*coldStore, error) {
	buckets, versions, sidecar := filepath.Join(s.Dir, "buckets"), filepath.Join(s.Dir, "versions"), filepath.Join(s.Dir, "sidecar")
	for _, dir := range []string{buckets, versions} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the gateway's directory: %w", err)
		}
	}
	opts := posix.PosixOpts{
		VersioningDir:       versions,
		CopyObjectThreshold: 5 << 30, // bytes, S3's own limit; 0 would refuse every copy
		ForceNoObjLockFile:  true,    // there is one gateway, so its own locks do
	}
	opts.SetNewDirPerm(0o700)
	opts.SetNewFilePerm(0o600)
	var attributes meta.MetadataStorer = meta.XattrMeta{}
	useSidecar, err := needsSidecar(buckets, sidecar)
	if err != nil {
		return nil, err
	}
	if useSidecar {
		if attributes, err = meta.NewSideCar(sidecar); err != nil {
			return nil, fmt.Errorf("open the metadata directory: %w", err)
		}
		opts.SideCarDir = sidecar
	}
	p, err := posix.New(buckets, attributes, opts)
	if err != nil {
		return nil, fmt.Errorf("open the gateway's directory: %w", err)
	}
	return &coldStore{Posix: p, attributes: attributes, sidecar: useSidecar, delay: s.RestoreDelay}, nil
}

func needsSidecar(buckets, sidecar string) (bool, error) {
	if _, err := os.Stat(sidecar); err == nil {
		return true, nil
	}
	if (meta.XattrMeta{}).StoreAttribute(nil, buckets, "", "farol-probe", []byte("1")) == nil {
		return false, nil
	}
	if err := os.Mkdir(sidecar, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return true, fmt.Errorf("make the metadata directory: %w", err)
	}
	return true, nil
}

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
