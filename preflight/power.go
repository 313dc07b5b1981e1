package preflight

import (
	"fmt"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/credentials"
)

// power is who may delete where, as far as targets have said.
type power struct {
	mu  sync.Mutex
	who map[credentials.Source][]string // the targets
}

func (p *power) note(t storage.Target, erases bool) {
	if !erases {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.who == nil {
		p.who = map[credentials.Source][]string{}
	}
	id := t.Credentials().Identity()
	p.who[id] = append(p.who[id], t.Name)
}

// rightsApart warns of credentials that may delete every copy there is. By level 4 of the NDSA's Levels of
// Digital Preservation (Control) nobody has that much, so that one theft or mistake leaves copies.
func (s Surroundings) rightsApart() []Finding {
	if s.Storage == nil || len(s.Storage.Targets) < 2 {
		return nil
	}
	for id, targets := range s.power.who {
		if len(targets) < len(s.Storage.Targets) {
			continue
		}
		for _, t := range s.Storage.Targets {
			if t.Credentials().Identity() == id {
				return []Finding{warn("s3", "rights apart",
					fmt.Sprintf("%s may delete in all %d targets: anyone who has it can destroy every copy", strings.ReplaceAll(s.Storage.KeyOf(t), " and ", " with "), len(targets)),
					"give targets credentials of their own (FAROL_TARGET_<NAME>_ROLE_ARN or _ACCESS_KEY_ID), and processes whose pools have neither Cleanup nor Delete some without the right to delete: \"Rights apart\" in docs/credentials.md")}
			}
		}
	}
	return nil
}
