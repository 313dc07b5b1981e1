// Package mailbox catches mail: its SMTP server accepts each mail for anyone, and passes
// none on.
package mailbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const mostMails = 1000 // the oldest are deleted above it

// Mail is a mail as it came.
type Mail struct {
	From string
	To   []string
	Text []byte
}

// Box is a directory with a file for each mail. It is safe for concurrent use.
type Box struct {
	dir string
	mu  sync.Mutex
}

// Open makes the directory.
func Open(dir string) (*Box, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for mail: %w", err)
	}
	return &Box{dir: dir}, nil
}

// Keep writes a mail to a file whose name begins with the time and has its recipient.
func (b *Box) Keep(m Mail) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := time.Now().UTC().Format("20060102T150405.000000000") + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@.-_", r) {
			return r
		}
		return '_'
	}, strings.Join(m.To, ","))
	path := filepath.Join(b.dir, name[:min(len(name), 200)]+".eml")
	if err := os.WriteFile(path+".tmp", m.Text, 0o600); err != nil {
		return fmt.Errorf("keep a mail: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil { // a reader sees whole mails only
		return fmt.Errorf("keep a mail: %w", err)
	}
	kept, err := filepath.Glob(filepath.Join(b.dir, "*.eml"))
	slices.Sort(kept)
	for _, old := range kept[:max(len(kept)-mostMails, 0)] {
		if err == nil {
			err = os.Remove(old)
		}
	}
	return err
}
