package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// patroni is a PostgreSQL that Patroni keeps on two nodes, with HAProxy before them.
type patroni struct {
	*site

	nodes [2]*node
	proxy string // host:port of HAProxy
}

// A node is a PostgreSQL and the Patroni that runs it. As long as the file "off" is in its
// directory, Patroni does not start.
type node struct {
	*devstack.Process

	dir, port, rest string
}

// patroniConf is of one node. The first one begins with a copy of the servers' PostgreSQL.
const patroniConf = `
scope: farol
name: $NAME
restapi: {listen: "127.0.0.1:$REST", connect_address: "127.0.0.1:$REST"}
etcd3: {host: "127.0.0.1:$ETCD"}
bootstrap:
  dcs:
    {ttl: 10, loop_wait: 2, retry_timeout: 3, master_start_timeout: 0, synchronous_mode: true, postgresql: {use_pg_rewind: true}}
  method: copy
  copy: {command: "$BIN/pg_basebackup -d '$ADMIN' -D $DIR/data -c fast --no-sync", no_params: true}
postgresql:
  listen: "127.0.0.1:$PORT"
  connect_address: "127.0.0.1:$PORT"
  bin_dir: $BIN
  data_dir: $DIR/data
  pgpass: $DIR/pgpass
  remove_data_directory_on_rewind_failure: true
  authentication:
    superuser: &all {username: "$USER", password: "$PASSWORD"}
    replication: *all
    rewind: *all
  parameters: {fsync: "off", jit: "off", wal_log_hints: "on", max_connections: 200, unix_socket_directories: ""}
`

// haproxyConf is what docs/operators.md recommends.
const haproxyConf = `
defaults
  mode tcp
  timeout connect 3s
  timeout client 30m
  timeout server 30m
listen primary
  bind $PROXY
  option httpchk GET /primary
  default-server check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`

// guard ends what Patroni, when it is killed, leaves behind, once this program is gone or wants it.
const guard = `trap "" TERM; cat
for d; do
	pid=$(head -n 1 "$d/data/postmaster.pid") && [ "$(readlink "/proc/$pid/cwd")" = "$d/data" ] && kill -9 "$pid" $(cat "/proc/$pid/task/$pid/children")
done`

// newPatroni has every process, and this program, go to the database by HAProxy's address alone.
func newPatroni(ctx context.Context, s *site) (*patroni, error) {
	for _, program := range []string{"patroni", "etcd", "haproxy", "setpriv"} {
		if _, err := lookUp(program); err != nil {
			return nil, fmt.Errorf("install Debian's packages patroni, python3-etcd, etcd-server and haproxy by running .ci/deps patroni: %w", err)
		}
	}
	c := &patroni{site: s}
	if err := c.start(); err != nil {
		return nil, err
	}
	if _, _, err := c.roles(ctx); err != nil {
		return nil, err
	}
	url := rig.Through(s.AdminURL, s.Name, c.proxy)
	s.Settings = map[string]string{"FAROL_DATABASE_URL": url} // of commands
	for _, p := range s.everyone() {
		p.Env["FAROL_DATABASE_URL"] = url
	}
	if _, err := c.write(ctx, `CREATE TABLE probes AS SELECT now() AS at`); err != nil {
		return nil, err
	}
	return c, s.LookAt(ctx, s.AdminURL, c.proxy) //nolint:wrapcheck // it says what it could not do
}

// lookUp finds a program, also where only administrators look.
func lookUp(program string) (path string, err error) {
	if path, err = exec.LookPath(program); err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	return path, err //nolint:wrapcheck // it names it
}

// start starts etcd, both nodes and HAProxy, which end with the experiment.
func (c *patroni) start() error {
	port, err := devstack.FreePorts(7)
	if err != nil {
		return err //nolint:wrapcheck // it says what it could not find
	}
	c.proxy = "127.0.0.1:" + port[0]
	client, peer := "http://127.0.0.1:"+port[1], "http://127.0.0.1:"+port[2]
	_, err = c.run("etcd", "etcd", "--data-dir", filepath.Join(c.Dir, "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	conf := strings.ReplaceAll(haproxyConf, "$PROXY", c.proxy)
	watched := []string{"sh", "-c", guard, "sh"}
	for i := range c.nodes {
		n := &node{dir: filepath.Join(c.Dir, "node"+strconv.Itoa(i)), port: port[3+i], rest: port[5+i]}
		c.nodes[i] = n
		conf += fmt.Sprintf("  server node%d 127.0.0.1:%s port %s\n", i, n.port, n.rest)
		watched = append(watched, n.dir)
	}
	file := filepath.Join(c.Dir, "haproxy.cfg")
	if err := errors.Join(err, os.WriteFile(file, []byte(conf), 0o600)); err != nil {
		return fmt.Errorf("prepare HAProxy: %w", err)
	}
	if _, err := c.run("guard", watched...); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.startNode(n, port[1]); err != nil {
			return err
		}
	}
	_, err = c.run("haproxy", "haproxy", "-db", "-f", file)
	return err
}

// startNode starts Patroni as the user that the servers' PostgreSQL runs as, which is not root.
func (c *patroni) startNode(n *node, etcd string) error {
	bin, err := devstack.PostgresPrograms("")
	admin, adminErr := pgx.ParseConfig(c.AdminURL)
	home, homeErr := os.Stat(filepath.Join(c.Servers.Dir, "stack", "postgres"))
	if err := errors.Join(err, adminErr, homeErr); err != nil {
		return fmt.Errorf("prepare Patroni: %w", err)
	}
	owner, _ := home.Sys().(*syscall.Stat_t)
	conf := strings.NewReplacer("$NAME", filepath.Base(n.dir), "$DIR", n.dir, "$PORT", n.port, "$REST", n.rest, "$ETCD", etcd, "$BIN", bin,
		"$ADMIN", c.AdminURL, "$USER", admin.User, "$PASSWORD", admin.Password).Replace(patroniConf)
	file, uid, gid := filepath.Join(n.dir, "patroni.yml"), int(owner.Uid), int(owner.Gid)
	err = errors.Join(os.Chmod(c.Dir, 0o711), os.Mkdir(n.dir, 0o700), os.WriteFile(file, []byte(conf), 0o600), os.Chown(file, uid, gid), os.Chown(n.dir, uid, gid)) //nolint:gosec // the user has to pass through
	if err != nil {
		return fmt.Errorf("prepare Patroni: %w", err)
	}
	command := []string{"sh", "-c", `while [ -e "$0/off" ]; do sleep 0.1; done; exec "$@"`, n.dir}
	if os.Geteuid() == 0 {
		command = append(command, "setpriv", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--clear-groups", "--pdeathsig", "KILL")
	}
	n.Process, err = c.run(filepath.Base(n.dir), append(command, "patroni", file)...)
	return err
}

// run starts a server, which ends with the experiment.
func (c *patroni) run(name string, command ...string) (*devstack.Process, error) {
	path, err := lookUp(command[0])
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &devstack.Process{
		Name: name, Binary: path, Args: command[1:], Log: filepath.Join(c.Dir, name+".log"), Dies: name != "guard", Ended: rig.NotStarted,
		Env: map[string]string{"PATH": os.Getenv("PATH"), "LC_ALL": "C.UTF-8", "HOME": c.Dir},
	}
	c.after = append(c.after, func(context.Context) error { p.Stop(); return nil })
	return p, p.Start() //nolint:wrapcheck // it says what it could not start
}

// roles waits until one node is the primary and the other its synchronous standby.
func (c *patroni) roles(ctx context.Context) (primary, standby *node, err error) {
	settled, err := poll(ctx, 90*time.Second, func() (bool, error) {
		for i, n := range c.nodes {
			primary, standby = n, c.nodes[1-i]
			if primary.is(ctx, "primary") && standby.is(ctx, "synchronous") {
				return true, nil
			}
		}
		return false, nil
	})
	if err == nil && !settled {
		err = fmt.Errorf("there has been no primary with a synchronous standby for 90 s; see the logs of Patroni in %s", c.Dir)
	}
	return primary, standby, err
}

// is asks a node's Patroni for its role, as HAProxy does.
func (n *node) is(ctx context.Context, role string) bool {
	status, _, err := n.ask(ctx, http.MethodGet, role, nil)
	return err == nil && status == http.StatusOK
}

// ask calls Patroni's REST API.
func (n *node) ask(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+n.rest+"/"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("ask Patroni: %w", err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask Patroni: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return resp.StatusCode, b.Bytes(), err //nolint:wrapcheck // it says what it could not read
}

// write writes by way of HAProxy, in a session of its own, and returns the port of the node that
// has committed it.
func (c *patroni) write(ctx context.Context, sql string) (port string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, rig.Through(c.AdminURL, "postgres", c.proxy))
	if err != nil {
		return "", fmt.Errorf("connect by way of HAProxy: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to say
	if _, err = conn.Exec(ctx, sql); err == nil {
		err = conn.QueryRow(ctx, `SELECT inet_server_port()::text`).Scan(&port)
	}
	if err != nil {
		return "", fmt.Errorf("write by way of HAProxy: %w", err)
	}
	return port, nil
}
