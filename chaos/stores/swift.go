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
)

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

func installSwift(ctx context.Context, _ *host) (program, error) {
	if _, err := tool(ctx, "..", nil, ".ci/deps", "swift"); err != nil {
		return program{}, err
	}
	out, err := tool(ctx, "..", nil, "dpkg-query", "-W", "-f", "${Version}", "swift-proxy")
	return program{version: out}, err
}

func startSwift(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := ports(ctx, 5)
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
