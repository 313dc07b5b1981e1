package lists

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// Recent keeps the lists that this process wrote last, and the inventories that it decoded
// last, since the same process often takes a bag through all its stages. It is safe for
// concurrent use; nil keeps nothing.
//
// What is kept of an item is used as long as no other process has had the item in between,
// which its tokens tell. A list that was deleted or damaged in staging in the meantime is
// then not noticed, and not needed.
type Recent struct {
	mu    sync.Mutex
	bags  []recentBag // the newest last
	items []*recentItem
	bytes int // of all lists
}

type recentBag struct {
	id string
	*bag.Bag
}

// recentItem is the lists of an item that this process was the last to work on.
type recentItem struct {
	id    int64
	etag  string // of its upload
	token int64  // of the claim
	lists map[string]keptList
}

// keptList is what was written, and when.
type keptList struct {
	content []byte
	at      time.Time
}

const (
	// mostRecent bounds the files of all bags that are kept, at about 512 bytes a file.
	mostRecent = 20_000
	// mostKept bounds in bytes what is kept of the lists of mostItems items, and largestKept
	// each list.
	mostKept    = 32 << 20
	mostItems   = 1000
	largestKept = 1 << 20
	// SmallTar is the size in bytes up to which a tar is kept as well: the stages read the
	// bytes of a small bag once.
	SmallTar = 4 << 20
)

// handedOn is by how much an item's token grows between two claims of one process, if
// nobody else has had the item: by one at the end of the first, and one at the second.
const handedOn = 2

// Enter says that this process has claimed an item. Lists that another process may have
// replaced are forgotten.
func (r *Recent) Enter(item claim.Item) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(item.ID); i >= 0 {
		had := r.items[i]
		if had.etag == item.ETag && (had.token == item.Token || had.token == item.Token-handedOn) {
			had.token = item.Token
			return
		}
		r.drop(i)
	}
	if len(r.items) == mostItems {
		r.drop(0)
	}
	r.items = append(r.items, &recentItem{id: item.ID, etag: item.ETag, token: item.Token, lists: map[string]keptList{}})
}

func (r *Recent) find(item int64) int {
	return slices.IndexFunc(r.items, func(one *recentItem) bool { return one.id == item })
}

func (r *Recent) drop(i int) {
	for _, list := range r.items[i].lists {
		r.bytes -= len(list.content)
	}
	r.items = slices.Delete(r.items, i, i+1)
}

// Forget has everything of an item read from staging and the receiving bucket again: it needs
// its lists no more, or something is wrong with what is kept.
func (r *Recent) Forget(item int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(item); i >= 0 {
		r.drop(i)
	}
}

// put keeps a list that was written under the claim that was entered last. The items that
// were claimed first are forgotten when there is too much.
func (r *Recent) put(item int64, name string, list []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(item)
	if i < 0 {
		return
	}
	r.bytes += len(list) - len(r.items[i].lists[name].content)
	delete(r.items[i].lists, name)
	if list != nil {
		r.items[i].lists[name] = keptList{list, time.Now()}
	}
	for r.bytes > mostKept {
		r.drop(0)
	}
}

// What else is kept of an item, among its lists.
const (
	tarName     = "tar"
	versionName = "version" // of the upload in the receiving bucket
)

// KeepTar keeps a small tar that this process has read, and whose bytes it knows to be those
// in the bucket.
func (r *Recent) KeepTar(item int64, content []byte) { r.put(item, tarName, content) }

// Tar is the tar of an item if this process has read it and still has it; else nil. The
// caller does not change it.
func (r *Recent) Tar(item int64) []byte { return r.list(item, tarName).content }

// KeepVersion keeps the ID of the version of an item's upload, which this process has just found; nil
// if it has to be looked for again.
func (r *Recent) KeepVersion(item int64, id []byte) { r.put(item, versionName, id) }

// Version is the ID of the version of an item's upload, which is empty where the receiving bucket
// keeps none; nil if this process does not know it.
func (r *Recent) Version(item int64) []byte { return r.list(item, versionName).content }

func (r *Recent) list(item int64, name string) keptList {
	if r == nil {
		return keptList{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(item); i >= 0 {
		return r.items[i].lists[name]
	}
	return keptList{}
}

func (r *Recent) bag(id string) *bag.Bag {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bags {
		if b.id == id {
			return b.Bag
		}
	}
	return nil
}

func (r *Recent) keepBag(id string, b *bag.Bag) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bags = append(r.bags, recentBag{id, b})
	files := 0
	for i := len(r.bags) - 1; i >= 0; i-- {
		if files += len(r.bags[i].Files) + 1; files > mostRecent {
			r.bags = slices.Delete(r.bags, 0, i+1)
			return
		}
	}
}

// open reads a list: from memory, if this process wrote it and nobody has had the item since.
func (a *Area) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if list := a.Recent.list(a.Item, name).content; list != nil {
		return io.NopCloser(bytes.NewReader(list)), nil
	}
	if l, err := upkeep.In(a.Registry).List(ctx, a.Item, name); err != nil || l.Content != nil {
		return io.NopCloser(bytes.NewReader(l.Content)), err
	}
	body, err := a.Bucket.Get(ctx, Key(a.Item, name), storage.Range{Length: -1})
	return body, cause.Storage(err)
}

// Written is when a list was written; zero if there is none.
func (a *Area) Written(ctx context.Context, name string) (time.Time, error) {
	if at := a.Recent.list(a.Item, name).at; !at.IsZero() {
		return at, nil
	}
	if l, err := upkeep.In(a.Registry).List(ctx, a.Item, name); err != nil || l.Content != nil {
		return l.WrittenAt, err
	}
	o, err := a.Bucket.Head(ctx, Key(a.Item, name))
	if errors.Is(err, storage.ErrNotFound) {
		return time.Time{}, nil
	}
	return o.LastModified, cause.Storage(err)
}
