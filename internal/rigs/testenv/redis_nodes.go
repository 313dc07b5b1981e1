package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/retry"
)

// A RedisNode is one process of a cluster, or of those around a Sentinel.
type RedisNode struct {
	Addr   string
	TLS    string        // where it answers with TLS, if it does
	Client *redis.Client // straight to it

	process *exec.Cmd
	busPort int
}

// Kill ends the process at once, for good.
func (n *RedisNode) Kill(t testing.TB) {
	t.Helper()
	must(t, n.process.Process.Signal(syscall.SIGKILL))
	_ = n.process.Wait() // it was killed
}

// startRedis starts a process with a configuration, of the test's own.
func startRedis(t testing.TB, password, config string, args ...string) *RedisNode {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	must(t, err)
	dir, port, bus := t.TempDir(), freePort(t), freePort(t)
	file := filepath.Join(dir, "redis.conf")
	config = strings.NewReplacer("$PORT", strconv.Itoa(port), "$BUS", strconv.Itoa(bus), "$DIR", dir, "$PASSWORD", password).Replace(config)
	must(t, os.WriteFile(file, []byte(config), 0o600))
	n := &RedisNode{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), busPort: bus}
	n.process = exec.Command(path, append([]string{file}, args...)...)
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, n.process.Start())
	n.Client = redis.NewClient(&redis.Options{Addr: n.Addr, Password: password})
	t.Cleanup(func() {
		_ = n.Client.Close()         // nothing is left to say
		_ = n.process.Process.Kill() // it may be dead
		_ = n.process.Wait()
	})
	Eventually(t, "Redis at "+n.Addr+" to answer", func() bool { return n.Client.Ping(t.Context()).Err() == nil })
	return n
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close() //nolint:errcheck // it took nothing
	at, _ := l.Addr().(*net.TCPAddr)
	return at.Port
}

const ofNode = `port $PORT
bind 127.0.0.1
dir $DIR
requirepass $PASSWORD
masterauth $PASSWORD
save ""
appendonly no
repl-diskless-sync-delay 0
`

// NewRedisTLS starts one Redis that asks others for certificates, and shows its own.
func NewRedisTLS(t testing.TB, ca, cert, key string) *RedisNode {
	t.Helper()
	n := startRedis(t, rand.Text(), ofNode+"tls-port $BUS\ntls-ca-cert-file "+ca+"\ntls-cert-file "+cert+"\ntls-key-file "+key+"\n")
	n.TLS = net.JoinHostPort("127.0.0.1", strconv.Itoa(n.busPort))
	return n
}

// A RedisCluster has three primaries, each with a replica.
type RedisCluster struct {
	URL               string // of the cluster, by its first node
	Primaries, Others []*RedisNode
}

// RedisSlots is how many slots a cluster has.
const RedisSlots = 16384

// NewRedisCluster starts one that ends with the test.
func NewRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	password := rand.Text()
	c := &RedisCluster{}
	var all []*RedisNode
	for range 6 {
		all = append(all, startRedis(t, password, ofNode+"cluster-enabled yes\ncluster-port $BUS\ncluster-node-timeout 1000\ncluster-replica-validity-factor 0\n"))
	}
	c.Primaries, c.Others = all[:3], all[3:]
	c.URL = "redis://:" + password + "@" + all[0].Addr + "?addr=" + all[1].Addr
	for i, n := range c.Primaries {
		must(t, n.Client.ClusterAddSlotsRange(t.Context(), i*RedisSlots/3, (i+1)*RedisSlots/3-1).Err())
	}
	host, port, _ := net.SplitHostPort(all[0].Addr)
	for _, n := range all[1:] {
		must(t, n.Client.Do(t.Context(), "CLUSTER", "MEET", host, port, all[0].busPort).Err())
	}
	for i, n := range c.Others {
		id := c.ID(t, c.Primaries[i])
		Eventually(t, "a replica to know its primary", func() bool { return n.Client.ClusterReplicate(t.Context(), id).Err() == nil })
	}
	Eventually(t, "the cluster to be whole", func() bool {
		for _, n := range all {
			info, err := n.Client.ClusterInfo(t.Context()).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
				return false
			}
		}
		return c.followed(t)
	})
	return c
}

// followed reports whether all replicas have what their primaries have.
func (c *RedisCluster) followed(t testing.TB) bool {
	t.Helper()
	for _, n := range c.Others {
		if info, err := n.Client.Info(t.Context(), "replication").Result(); err != nil || !strings.Contains(info, "master_link_status:up") {
			return false
		}
	}
	return true
}

// ID names a node to the others.
func (c *RedisCluster) ID(t testing.TB, n *RedisNode) string {
	t.Helper()
	id, err := n.Client.Do(t.Context(), "CLUSTER", "MYID").Text()
	must(t, err)
	return id
}

// Move moves a slot with all its keys from one primary to another, key by key, while others use it.
func (c *RedisCluster) Move(ctx context.Context, slot int, from, to *RedisNode) error {
	fromID, err := from.Client.Do(ctx, "CLUSTER", "MYID").Text()
	toID, otherErr := to.Client.Do(ctx, "CLUSTER", "MYID").Text()
	if err := errors.Join(err, otherErr,
		to.Client.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(),
		from.Client.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err()); err != nil {
		return fmt.Errorf("begin to move slot %d: %w", slot, err)
	}
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		keys, err := from.Client.ClusterGetKeysInSlot(ctx, slot, 10).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "AUTH", from.Client.Options().Password, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := from.Client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("move the keys of slot %d: %w", slot, err)
		}
		retry.Pause(ctx, time.Millisecond)
	}
	for _, n := range append([]*RedisNode{to, from}, c.Primaries...) {
		if err := n.Client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err(); err != nil {
			return fmt.Errorf("end to move slot %d: %w", slot, err)
		}
	}
	return c.knows(ctx, slot, toID)
}

// knows waits until all nodes know the owner of a slot, as who moves the next slot should. Else a Redis before
// 7.2 may give the slot back on the word of a node that has not heard of the move, and both refuse it until a
// person mends that.
func (c *RedisCluster) knows(ctx context.Context, slot int, owner string) error {
	for _, n := range append(slices.Clone(c.Primaries), c.Others...) {
		for {
			shards, err := n.Client.ClusterShards(ctx).Result()
			if err != nil {
				return fmt.Errorf("wait until slot %d is known to have moved: %w", slot, err)
			}
			if slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
				return slices.ContainsFunc(s.Nodes, func(n redis.Node) bool { return n.ID == owner }) &&
					slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End })
			}) {
				break
			}
			retry.Pause(ctx, time.Millisecond)
		}
	}
	return nil
}

// A RedisSentinel is a primary with two replicas, and three processes that choose another primary.
type RedisSentinel struct {
	URL     string
	Nodes   []*RedisNode // the first was the primary at the beginning
	Watches []*RedisNode
}

// NewRedisSentinel starts one that ends with the test.
func NewRedisSentinel(t testing.TB) *RedisSentinel {
	t.Helper()
	password := rand.Text()
	s := &RedisSentinel{}
	for i := range 3 {
		n := startRedis(t, password, ofNode)
		if i > 0 {
			host, port, _ := net.SplitHostPort(s.Nodes[0].Addr)
			must(t, n.Client.ReplicaOf(t.Context(), host, port).Err())
		}
		s.Nodes = append(s.Nodes, n)
	}
	host, port, _ := net.SplitHostPort(s.Nodes[0].Addr)
	for range 3 {
		s.Watches = append(s.Watches, startRedis(t, "", `port $PORT
bind 127.0.0.1
dir $DIR
sentinel monitor farol `+host+" "+port+` 2
sentinel auth-pass farol `+password+`
sentinel down-after-milliseconds farol 1000
sentinel failover-timeout farol 3000
`, "--sentinel"))
	}
	s.URL = "redis://:" + password + "@" + s.Watches[0].Addr + "?master_name=farol&addr=" + s.Watches[1].Addr + "&addr=" + s.Watches[2].Addr
	Eventually(t, "the Sentinels to know each other and the replicas", func() bool {
		for _, w := range s.Watches {
			master, err := w.Client.Do(t.Context(), "SENTINEL", "MASTER", "farol").Result()
			if text := fmt.Sprint(master); err != nil || !strings.Contains(text, "num-other-sentinels:2") || !strings.Contains(text, "num-slaves:2") {
				return false
			}
		}
		return true
	})
	return s
}
