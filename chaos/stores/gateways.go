package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/devstack"
)

// Keys of the stores that take ours.
const (
	accessKey = "FAROLSTORESKEY000001"
	secretKey = "a-secret-of-forty-characters-for-a-store"
	region    = "us-east-1"
)

// atPort is a store on loopback with our keys.
func atPort(port string, ca *rig.Authority) rig.Store {
	s := rig.Store{Gateway: devstack.Gateway{Endpoint: "http://127.0.0.1:" + port, AccessKeyID: accessKey, SecretAccessKey: secretKey, Region: region}}
	if ca != nil {
		s.Endpoint, s.CAFile = "https://127.0.0.1:"+port, ca.File
	}
	return s
}

func startGateway(ctx context.Context, _ *host, srv *rig.Servers) (rig.Store, string, error) {
	version, err := tool(ctx, filepath.Join("..", "dev"), nil, "go", "list", "-m", "-f", "{{.Version}}", "github.com/versity/versitygw")
	return rig.Store{Gateway: srv.Gateway()}, version, err
}

func installMinIO(ctx context.Context, h *host) (program, error) {
	return fromModule(ctx, h, "github.com/minio/minio", ".")
}

func startMinIO(secure bool) func(context.Context, *host, *rig.Servers) (rig.Store, string, error) {
	return func(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
		port, err := ports(ctx, 2)
		certs := filepath.Join(h.dir, "certs")
		var ca *rig.Authority
		if secure && err == nil {
			ca, err = rig.NewAuthority(certs)
		}
		if err != nil {
			return rig.Store{}, h.installed.version, err
		}
		err = h.run("minio", map[string]string{"MINIO_ROOT_USER": accessKey, "MINIO_ROOT_PASSWORD": secretKey, "MINIO_BROWSER": "off"},
			h.installed.path, "server", "--certs-dir", certs, "--address", "127.0.0.1:"+port[0], "--console-address", "127.0.0.1:"+port[1], filepath.Join(h.dir, "data"))
		return atPort(port[0], ca), h.installed.version, err
	}
}

func installSeaweedFS(ctx context.Context, h *host) (program, error) {
	return fromModule(ctx, h, "github.com/seaweedfs/seaweedfs", "./weed")
}

func startSeaweedFS(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := ports(ctx, 8)
	if err != nil {
		return rig.Store{}, "", err
	}
	certs, users := filepath.Join(h.dir, "certs"), filepath.Join(h.dir, "users.json")
	ca, err := rig.NewAuthority(certs)
	err = errors.Join(err, os.MkdirAll(filepath.Join(h.dir, "data"), 0o700), os.WriteFile(users, fmt.Appendf(nil,
		`{"identities": [{"name": "farol", "credentials": [{"accessKey": %q, "secretKey": %q}], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}`, accessKey, secretKey), 0o600))
	if err != nil {
		return rig.Store{}, "", fmt.Errorf("set up SeaweedFS: %w", err)
	}
	err = h.run("weed", nil, h.installed.path, "-logtostderr", "server", "-dir", filepath.Join(h.dir, "data"), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1",
		"-master.port", port[0], "-master.port.grpc", port[1], "-master.volumeSizeLimitMB", "256", "-volume.port", port[2], "-volume.port.grpc", port[3],
		"-volume.max", "1000", "-filer", "-filer.port", port[4], "-filer.port.grpc", port[5], "-s3", "-s3.port", port[6], "-s3.port.grpc", port[7],
		"-s3.config", users, "-s3.cert.file", ca.CertFile, "-s3.key.file", ca.KeyFile)
	return atPort(port[6], ca), h.installed.version, err
}
