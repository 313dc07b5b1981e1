package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Interim is the interim metadata of an item: the lists that the stages of an ingest
// have left in staging, and what Redis has. It lasts until Cleanup, or the janitor.
type Interim struct {
	Item     registry.WorkItem
	Stages   map[string]int64   // how many files each stage has finished, by its name and pass
	Counters *progress.Counters // how far the last attempt came; nil if that is not known
	Faults   *progress.Faults   // what the last attempt failed of; nil if that is not known
	Missing  []string           // lists that are not in staging, or of no use

	r      recorder
	pass   string // of the stage that the item is at, as Redis knows it
	rank   int    // how many of the ingest's stages it has finished
	failed map[string]progress.Fault
}

// Interim reads what is known of an item but for its files, and fetches the lists of
// these. Where there is no Redis to ask, it goes without. Close is the caller's.
func (d Deps) Interim(ctx context.Context, item registry.WorkItem, attempts []registry.Attempt) (_ *Interim, err error) {
	m := &Interim{Item: item, rank: finishedStages(item, attempts)}
	m.r = recorder{Deps: d, w: &work{item: claim.Item{ID: item.ID}, log: d.Log}, spools: map[string]*os.File{}}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	entered, err := d.Registry.Entered(ctx, item.ID)
	if err != nil {
		return nil, err
	}
	m.pass = fmt.Sprintf("%s@%d", item.Stage, entered)
	if err := m.notes(ctx); err != nil {
		return nil, err
	}
	m.blame(attempts)
	if item.Action != "" && item.Action != "Ingest" {
		return m, nil // requests keep no lists
	}
	for _, name := range []string{inventoryName, planName, formatsName, copiesName} {
		if err := m.fetch(ctx, name); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close removes what was fetched.
func (m *Interim) Close() { m.r.close() }

// ingestStages are the stages of an ingest in their order.
func ingestStages() (names []string) {
	for _, s := range Ingest(Deps{}) {
		names = append(names, s.Stage)
	}
	return names
}

// finishedStages is how many of the ingest's stages an item has finished. One that is
// at an added stage has finished those up to the last that the ledger has as done.
func finishedStages(item registry.WorkItem, attempts []registry.Attempt) int {
	order := ingestStages()
	if item.Status == "Success" {
		return len(order)
	}
	if at := slices.Index(order, item.Stage); at >= 0 {
		return at
	}
	for _, a := range slices.Backward(attempts) {
		if at := slices.Index(order, a.Stage); at >= 0 && a.Outcome != nil && *a.Outcome == "done" {
			return at + 1
		}
	}
	return 0
}

// notes reads what Redis has of the item as a whole.
func (m *Interim) notes(ctx context.Context) (err error) {
	store := m.r.Progress
	if store == nil {
		return nil
	}
	if m.Stages, err = store.Summary(ctx, m.Item.ID); err != nil {
		return err
	}
	counters, _, ok, err := store.Counters(ctx, m.Item.ID)
	if err != nil {
		return err
	}
	if ok {
		m.Counters = &counters
	}
	faults, ok, err := store.Faults(ctx, m.Item.ID)
	if ok {
		faults.List, faults.Warnings = redacted(faults.List), redacted(faults.Warnings)
		m.Faults = &faults
	}
	return err
}

// redacted takes the credentials of URLs out of what services have said.
func redacted(list []progress.Fault) []progress.Fault {
	clean := []progress.Fault{}
	for _, f := range list {
		f.Message, f.Expected, f.Found = storage.Redact(f.Message), storage.Redact(f.Expected), storage.Redact(f.Found)
		clean = append(clean, f)
	}
	return clean
}

// blame finds the files that the last attempt failed at, if the item is still where
// that left it.
func (m *Interim) blame(attempts []registry.Attempt) {
	m.failed = map[string]progress.Fault{}
	if len(attempts) == 0 || m.Item.Status == "Success" {
		return
	}
	last := attempts[len(attempts)-1]
	if last.Stage != m.Item.Stage || last.Outcome == nil || *last.Outcome == "done" {
		return
	}
	if last.FileInHand != "" && last.ErrorCode != "" { // its worker died of it, or with it
		m.failed[last.FileInHand] = progress.Fault{Code: last.ErrorCode, Message: storage.Redact(last.Error)}
	}
	if m.Faults == nil || m.Faults.Token != last.ClaimToken {
		return
	}
	for _, f := range m.Faults.List {
		if _, known := m.failed[f.Path]; f.Path != "" && !known {
			m.failed[f.Path] = f
		}
	}
}

// fetch gets a list, which is missing if it is not there or, in two reads, of no use.
func (m *Interim) fetch(ctx context.Context, name string) error {
	if name != inventoryName && m.r.spools[inventoryName] == nil {
		m.Missing = append(m.Missing, name) // nobody can tell which bag it goes with
		return nil
	}
	err := m.fetchOnce(ctx, name)
	if spoiled(ctx, err) && !errors.Is(err, storage.ErrNotFound) {
		m.drop(name)
		err = m.fetchOnce(ctx, name)
	}
	var useless *uselessList
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, errDamaged) || errors.As(err, &useless) {
		m.drop(name)
		m.Missing = append(m.Missing, name)
		return nil
	}
	return err
}

func (m *Interim) fetchOnce(ctx context.Context, name string) (err error) {
	var id string
	if m.r.spools[name], id, err = m.r.w.fetch(ctx, m.r.Deps, name); err != nil {
		return err
	}
	if name != inventoryName {
		return m.r.goesWith(name)
	}
	m.r.id = id
	return m.r.look()
}

func (m *Interim) drop(name string) {
	if spool := m.r.spools[name]; spool != nil {
		_ = spool.Close() // only read from, and not on disk any more
	}
	delete(m.r.spools, name)
}

// Known tells whether the files of the item are known, from an inventory.
func (m *Interim) Known() bool { return m.r.spools[inventoryName] != nil }

// Anything tells whether there is any interim metadata.
func (m *Interim) Anything() bool {
	return m.Known() || len(m.Stages) > 0 || m.Counters != nil || m.Faults != nil
}

// lookedUp is how many files are looked up in Redis at a time.
const lookedUp = 1000

// Files yields the files one after the other, in the order of the bag. Without an
// inventory, they are those that Receive has read so far.
func (m *Interim) Files(ctx context.Context) iter.Seq2[*ItemFile, error] {
	if !m.Known() {
		return m.read(ctx)
	}
	return func(yield func(*ItemFile, error) bool) {
		l, err := m.open()
		defer l.close()
		if err != nil {
			yield(nil, err)
			return
		}
		group := make([]*bag.File, 0, lookedUp)
		first, more := 0, true
		flush := func() {
			more = more && m.yield(ctx, l, first, group, yield)
			first, group = first+len(group), group[:0]
		}
		for f, err := range m.r.inventory() {
			if err != nil {
				yield(nil, err)
				return
			}
			if group = append(group, f); len(group) == lookedUp {
				if flush(); !more {
					return
				}
			}
		}
		flush()
	}
}

// open opens the lists that there are beside the inventory.
func (m *Interim) open() (l *lists, err error) {
	l = &lists{}
	if m.r.spools[planName] != nil {
		if l.plan, err = readBeside(&m.r, planName, func(k known) int { return k.Index }); err != nil {
			return l, err
		}
	}
	if m.r.spools[formatsName] != nil {
		if l.formats, err = readBeside(&m.r, formatsName, func(f identified) int { return f.Index }); err != nil {
			return l, err
		}
	}
	if m.r.spools[copiesName] != nil {
		l.copies, err = readBeside(&m.r, copiesName, func(c copies) int { return c.Index })
	}
	return l, err
}

// yield hands on some files. The first has this index.
func (m *Interim) yield(ctx context.Context, l *lists, first int, group []*bag.File, yield func(*ItemFile, error) bool) bool {
	results := map[int]string{}
	if m.r.Progress != nil && m.Stages[m.pass] > 0 {
		indexes := make([]int, len(group))
		for i := range group {
			indexes[i] = first + i
		}
		var err error
		if results, err = m.r.Progress.ResultsOf(ctx, m.Item.ID, m.pass, indexes); err != nil {
			yield(nil, err)
			return false
		}
	}
	for i, f := range group {
		result, done := results[first+i]
		of, err := m.file(first+i, f, l, result, done)
		if !yield(of, err) || err != nil {
			return false
		}
	}
	return true
}

// noted is what the lists beside the inventory have of a file.
type noted struct {
	known    known
	format   identified
	isKnown  bool // the format is
	copies   copies
	verified bool // the copies are
}

func (l *lists) of(i int) (of noted, err error) {
	if of.known, _, err = l.plan.at(i); err != nil {
		return of, err
	}
	if of.format, of.isKnown, err = l.formats.at(i); err != nil {
		return of, err
	}
	of.copies, of.verified, err = l.copies.at(i)
	return of, err
}

// file says what has become of a file; done is whether the stage that the item is at
// has finished it.
func (m *Interim) file(i int, f *bag.File, l *lists, result string, done bool) (*ItemFile, error) {
	of := newItemFile(f)
	has, err := l.of(i)
	if err != nil {
		return nil, err
	}
	finished := m.rank
	if done {
		finished++
	}
	if finished > stageReingest && has.known.UUID != "" {
		of.UUID = has.known.UUID
	}
	of.State = stateAfter(finished, f, has.known)
	switch {
	case finished > stageIdentify && has.isKnown:
		of.identified(has.format)
	case done && m.rank == stageIdentify:
		if as, _, ok := unpackFormat(i, result); ok {
			of.identified(as)
		}
	}
	if stored(f, has.known) {
		m.copied(of, has, finished)
	}
	if fault, ok := m.failed[f.Path]; ok && !done {
		of.State, of.Code, of.Message = fileFailed, fault.Code, fault.Message
	}
	return of, nil
}

// copied adds the copies of a file that there are after so many stages.
func (m *Interim) copied(of *ItemFile, has noted, finished int) {
	switch {
	case finished > stageVerify && has.verified:
		of.copied(has.copies.Copies)
	case finished > stageStore:
		for _, target := range storage.TargetsOf(m.r.plan.StorageOption) {
			of.Copies = append(of.Copies, FileCopy{Target: target})
		}
	}
}

// How many stages an ingest has finished when it comes to one.
const (
	stageReingest = 2
	stageStage    = 3
	stageIdentify = 4
	stageStore    = 5
	stageVerify   = 6
	stageRecord   = 7
)

// stateAfter is the state of a file of an ingest that so many stages have finished.
func stateAfter(finished int, f *bag.File, k known) string {
	switch {
	case f.Missing:
		return fileMissing
	case !f.Preservable():
		return filePackaging
	case finished <= stageReingest:
		return fileReceived
	case k.Unchanged:
		return fileUnchanged
	case finished > stageRecord && k.UUID != "":
		return fileReplaced
	case finished > stageRecord:
		return fileAdded
	case finished > stageVerify:
		return fileVerified
	case finished > stageStore:
		return fileCopied
	case finished > stageIdentify:
		return fileIdentified
	case finished > stageStage:
		return fileStaged
	}
	return fileReceived
}
