package devstack

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// secrets are made once for a data directory, which is useless without them.
type secrets struct {
	PostgresPassword string `json:"postgres_password"` // of the superuser
	OwnerPassword    string `json:"owner_password"`    // of farol_owner; "": the superuser is farol, and does everything
	WorkPassword     string `json:"work_password"`     // of farol
	RedisPassword    string `json:"redis_password"`
	AccessKeyID      string `json:"access_key_id"`
	SecretAccessKey  string `json:"secret_access_key"`
	WebKey           string `json:"web_key"` // FAROL_WEB_KEY
}

func loadSecrets(dir string) (secrets, error) {
	path := filepath.Join(dir, "secrets")
	var s secrets
	b, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(b, &s); err != nil {
			return s, fmt.Errorf("read %s: %w", path, err)
		}
		if s.WebKey != "" {
			return s, nil
		}
		s.WebKey = webKey() // the directory is of an older version
		return s, s.write(path)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("read the secrets: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "postgres")); err == nil {
		return s, fmt.Errorf("%s is gone, and with it the password of the database: put it back, or remove %s to start with an empty stack",
			path, dir)
	}
	s = secrets{
		PostgresPassword: rand.Text(), OwnerPassword: rand.Text(), WorkPassword: rand.Text(), RedisPassword: rand.Text(),
		AccessKeyID: "FAROL" + rand.Text()[:15], SecretAccessKey: rand.Text() + rand.Text()[:14], WebKey: webKey(),
	}
	return s, s.write(path)
}

// webKey is 32 random bytes as FAROL_WEB_KEY has them.
func webKey() string {
	key := make([]byte, 32)
	rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

func (s secrets) write(path string) error {
	b, err := json.MarshalIndent(s, "", "\t")
	if err == nil {
		err = writeFile(path, b)
	}
	if err != nil {
		return fmt.Errorf("write the secrets: %w", err)
	}
	return nil
}

// ports are the addresses of a stack, the same from run to run where possible.
type ports struct {
	path string

	mu   sync.Mutex
	byID map[string]int // guarded by mu
}

func loadPorts(dir string) (*ports, error) {
	p := &ports{path: filepath.Join(dir, "ports.json"), byID: map[string]int{}}
	b, err := os.ReadFile(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p.byID)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ports: %w", err)
	}
	return p, nil
}

func (p *ports) save() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := json.MarshalIndent(p.byID, "", "\t")
	if err == nil {
		err = writeFile(p.path, b)
	}
	if err != nil {
		return fmt.Errorf("write the ports: %w", err)
	}
	return nil
}

// take returns host:port addresses that were free a moment ago, those of the
// last run if nobody else has them now.
func (p *ports) take(ids ...string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	addrs := make([]string, len(ids))
	for i, id := range ids {
		if port := p.byID[id]; port == 0 || !free(address(port)) {
			port, err := p.pick()
			if err != nil {
				return nil, err
			}
			p.byID[id] = port
		}
		addrs[i] = address(p.byID[id])
	}
	return addrs, nil
}

// pick keeps away from the ports that the kernel gives to outgoing connections
// (from 32768 on Linux, 49152 elsewhere): one of those might hold a remembered
// port just when we want it again.
func (p *ports) pick() (int, error) {
	taken := make(map[int]bool, len(p.byID))
	for _, port := range p.byID {
		taken[port] = true
	}
	for range 200 {
		port := 20000 + mathrand.IntN(10000)
		if !taken[port] && free(address(port)) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port: 200 of those from 20000 to 29999 are in use")
}

// FreePorts finds ports that nobody has now, and that the kernel gives to no outgoing connection.
func FreePorts(n int) (list []string, err error) {
	p := &ports{byID: map[string]int{}}
	for range n {
		port, err := p.pick()
		if err != nil {
			return nil, err
		}
		list = append(list, strconv.Itoa(port))
		p.byID[list[len(list)-1]] = port
	}
	return list, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(addr string) bool {
	l, err := net.Listen("tcp", addr) //nolint:noctx // a loopback port is free or not, at once
	if err != nil {
		return false
	}
	return l.Close() == nil
}
