package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/farol-preservation/farol/chaos/rig"
)

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

func installCeph(ctx context.Context, _ *host) (program, error) {
	if _, err := tool(ctx, "..", nil, ".ci/deps", "ceph"); err != nil {
		return program{}, err
	}
	out, err := tool(ctx, "..", nil, "dpkg-query", "-W", "-f", "${Version}", "radosgw")
	return program{version: out}, err
}

func startCeph(ctx context.Context, h *host, _ *rig.Servers) (rig.Store, string, error) {
	port, err := ports(ctx, 2)
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
