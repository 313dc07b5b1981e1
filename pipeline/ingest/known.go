package ingest

import (
	"path"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline/lists"
)

// knownFormats are the formats of contents that this process has identified lately, so that a
// file that many bags have is identified once. They are of one version of the signatures. It
// is safe for concurrent use.
type knownFormats struct {
	mu         sync.Mutex
	version    string
	young, old map[content]format.Result // old goes when young is full
}

// mostYoung bounds each half, which takes some 500 bytes an entry.
const mostYoung = 10_000

// content is all that an answer depends on.
type content struct {
	sha256 [32]byte
	size   int64
	ending string // of the name, which decides between formats with the same signature
}

// contentOf is of a file whose bytes were compared with its digest.
func contentOf(f *lists.File) content {
	name := strings.ToLower(path.Base(f.Path))
	if i := strings.IndexByte(name, '.'); i >= 0 {
		name = name[i:]
	}
	return content{f.SHA256, f.Size, name}
}

func (k *knownFormats) find(c content) (format.Result, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.young[c]
	if !ok {
		r, ok = k.old[c]
	}
	return r, ok
}

// keep keeps an answer that the same content would have again: a child that crashed may have
// been killed by others.
func (k *knownFormats) keep(c content, r format.Result) {
	if r.Version == "" || r.Reason != "" && r.Reason != format.Unknown {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Version != k.version {
		k.version, k.young, k.old = r.Version, nil, nil
	}
	if len(k.young) >= mostYoung {
		k.young, k.old = nil, k.young
	}
	if k.young == nil {
		k.young = map[content]format.Result{}
	}
	k.young[c] = r
}
