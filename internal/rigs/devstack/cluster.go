package devstack

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// cluster is where PostgreSQL's files are and whom they belong to. PostgreSQL
// refuses to run as root, so under root it runs as the owner of its directory.
type cluster struct {
	path     string // private to the owner; the data is in a directory below
	uid, gid int    // -1: ourselves
}

func (c cluster) data() string { return filepath.Join(c.path, "data") }

// version is the major version that made the cluster, "" if there is none.
func (c cluster) version() string {
	b, _ := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	return strings.TrimSpace(string(b))
}

func (c cluster) own(path string) error {
	if c.uid < 0 {
		return nil
	}
	return os.Chown(path, c.uid, c.gid)
}

// clusterHome finds or makes the directory of the cluster of a stack: dir/postgres.
// Under root, dir may lie where no other user can go, such as /root. Then the
// cluster is kept in a directory of its own, named after dir, and dir/postgres
// is a link to it.
func clusterHome(dir string) (cluster, error) {
	link := filepath.Join(dir, "postgres")
	path, err := filepath.EvalSymlinks(link)
	if err == nil {
		return existingHome(path)
	}
	if target, lerr := os.Readlink(link); lerr == nil {
		return cluster{}, fmt.Errorf("the database was in %s, which cannot be read: %w; remove %s to start with an empty stack", target, err, dir)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return cluster{}, fmt.Errorf("find the cluster: %w", err)
	}
	if os.Geteuid() != 0 {
		c := cluster{path: link, uid: -1, gid: -1}
		if err := os.Mkdir(c.path, 0o700); err != nil {
			return c, fmt.Errorf("make the cluster's directory: %w", err)
		}
		return c, nil
	}
	uid, gid, err := ordinaryUser()
	if err != nil {
		return cluster{}, err
	}
	return newHome(dir, link, uid, gid)
}

func existingHome(path string) (cluster, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return cluster{}, fmt.Errorf("find the cluster: %w", err)
	}
	c := cluster{path: path, uid: -1, gid: -1}
	if os.Geteuid() != 0 {
		return c, nil
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		c.uid, c.gid = int(st.Uid), int(st.Gid)
		return c, nil
	}
	// We died between making it and giving it away.
	if c.uid, c.gid, err = ordinaryUser(); err != nil {
		return c, err
	}
	return c, c.own(path)
}

func newHome(dir, link string, uid, gid int) (cluster, error) {
	c := cluster{path: link, uid: uid, gid: gid}
	apart := !passable(dir, uid, gid)
	if apart {
		base := "/var/lib/farol"
		if err := os.MkdirAll(base, 0o711); err != nil {
			return c, fmt.Errorf("make a directory for the cluster outside of %s, which user %d cannot enter: %w", dir, uid, err)
		}
		c.path = filepath.Join(base, fmt.Sprintf("postgres-%x", sha256.Sum256([]byte(dir)))[:25])
		// One that is there belonged to an earlier dir of that name. Its
		// password went with that dir, so nobody can want it any more.
		if err := os.RemoveAll(c.path); err != nil {
			return c, fmt.Errorf("remove the cluster of an earlier %s: %w", dir, err)
		}
	}
	err := os.Mkdir(c.path, 0o700)
	if err == nil {
		err = c.own(c.path)
	}
	if err == nil && apart {
		err = os.Symlink(c.path, link)
	}
	if err != nil {
		return c, fmt.Errorf("make the cluster's directory: %w", err)
	}
	return c, nil
}

// passable reports whether a user can go through dir and all that is above it.
func passable(dir string, uid, gid int) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		fi, err := os.Stat(dir)
		if err != nil {
			return false
		}
		bit := os.FileMode(0o001)
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			bit = 0o100
		} else if ok && int(st.Gid) == gid {
			bit = 0o010
		}
		if fi.Mode()&bit == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// ordinaryUser is whom root runs PostgreSQL as.
func ordinaryUser() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid > 0 {
			return uid, gid, nil
		}
	}
	return 0, 0, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody: run as an ordinary user")
}
