// Package interim says what is known of an item and its files while it is being ingested,
// by the lists of its stages and what Redis has, and keeps it before it is deleted.
package interim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Metadata is the interim metadata of an item: the lists that the stages of an ingest
// have left, and what Redis has. It lasts until Cleanup, or the janitor.
type Metadata struct {
	Item     record.WorkItem
	Stages   map[string]int64   // how many files each stage has finished, by its name and pass
	Counters *progress.Counters // how far the last attempt came; nil if that is not known
	Faults   *progress.Faults   // what the last attempt failed of; nil if that is not known
	Missing  []string           // lists that are not there, or of no use

	reader Reader
	lists  *lists.Set
	pass   string // of the stage that the item is at, as Redis knows it
	rank   int    // how many of the ingest's stages it has finished
	failed map[string]progress.Fault
}

// A Stage is what is to be known of a stage of an ingest to say what has become of
// the files of an item.
type Stage struct {
	Name registry.Stage
	List string // that it makes in the staging area; "": none
	File string // state of the files that have passed it; "": as before
}

// Reader reads the interim metadata of items.
type Reader struct {
	Registry *registry.Registry
	Staging  *storage.Bucket
	Progress *progress.Store // nil: there is no Redis to ask, and it goes without
	Log      *slog.Logger
	Stages   []Stage       // of an ingest, in their order
	Recent   *lists.Recent // what this process has of the lists of items that it works on; nil: nothing
}

// Read reads what is known of an item but for its files, and fetches the lists of
// these. Close is the caller's.
func (r Reader) Read(ctx context.Context, item record.WorkItem, attempts []record.Attempt) (_ *Metadata, err error) {
	m := &Metadata{Item: item, reader: r, lists: lists.NewSet(&lists.Area{Bucket: r.Staging, Registry: r.Registry, Item: item.ID, Log: r.Log, Recent: r.Recent})}
	m.rank = m.finishedStages(attempts)
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	entered, err := r.Registry.Entered(ctx, item.ID)
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
	for _, name := range []string{lists.InventoryName, lists.PlanName, lists.FormatsName, lists.CopiesName} {
		if err := m.fetch(ctx, name); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close removes what was fetched.
func (m *Metadata) Close() { m.lists.Close() }

// finishedStages is how many of the ingest's stages an item has finished. One that is
// at an added stage has finished those up to the last that the ledger has as done.
func (m *Metadata) finishedStages(attempts []record.Attempt) int {
	order := m.reader.Stages
	at := func(stage registry.Stage) int {
		return slices.IndexFunc(order, func(s Stage) bool { return s.Name == stage })
	}
	if m.Item.Status == "Success" {
		return len(order)
	}
	if n := at(m.Item.Stage); n >= 0 {
		return n
	}
	for _, a := range slices.Backward(attempts) {
		if n := at(a.Stage); n >= 0 && a.Outcome != nil && *a.Outcome == "done" {
			return n + 1
		}
	}
	return 0
}

// passed are the stages that a file has passed, if so many are.
func (m *Metadata) passed(finished int) []Stage {
	return m.reader.Stages[:min(finished, len(m.reader.Stages))]
}

// makes tells whether one of some stages makes a list.
func makes(stages []Stage, list string) bool {
	return slices.ContainsFunc(stages, func(s Stage) bool { return s.List == list })
}

// notes reads what Redis has of the item as a whole.
func (m *Metadata) notes(ctx context.Context) (err error) {
	store := m.reader.Progress
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
		faults.List, faults.Warnings = Redacted(faults.List), Redacted(faults.Warnings)
		m.Faults = &faults
	}
	return err
}

// Redacted takes the credentials of URLs out of what services have said.
func Redacted(list []progress.Fault) []progress.Fault {
	clean := []progress.Fault{}
	for _, f := range list {
		f.Message, f.Expected, f.Found = storage.Redact(f.Message), storage.Redact(f.Expected), storage.Redact(f.Found)
		clean = append(clean, f)
	}
	return clean
}

// blame finds the files that the last attempt failed at, if the item is still where
// that left it.
func (m *Metadata) blame(attempts []record.Attempt) {
	m.failed = map[string]progress.Fault{}
	if len(attempts) == 0 || m.Item.Status == "Success" {
		return
	}
	last := attempts[len(attempts)-1]
	if last.Stage != m.Item.Stage || last.Outcome == nil || *last.Outcome == "done" {
		return
	}
	if last.CurrentFile != "" && last.ErrorCode != "" { // its worker died of it, or with it
		m.failed[last.CurrentFile] = progress.Fault{Code: last.ErrorCode, Message: storage.Redact(last.Error)}
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
func (m *Metadata) fetch(ctx context.Context, name string) error {
	if name != lists.InventoryName && !m.lists.Has(lists.InventoryName) {
		m.Missing = append(m.Missing, name) // nobody can tell which bag it goes with
		return nil
	}
	err := m.lists.Fetch(ctx, name)
	if _, useless := errors.AsType[*lists.UselessError](err); useless || errors.Is(err, storage.ErrNotFound) || errors.Is(err, lists.ErrDamaged) {
		m.lists.Drop(name)
		m.Missing = append(m.Missing, name)
		return nil
	}
	return err
}

// Known tells whether the files of the item are known, from an inventory.
func (m *Metadata) Known() bool { return m.lists.Has(lists.InventoryName) }

// anything tells whether there is any interim metadata.
func (m *Metadata) anything() bool {
	return m.Known() || len(m.Stages) > 0 || m.Counters != nil || m.Faults != nil
}

// lookedUp is how many files are looked up in Redis at a time.
const lookedUp = 1000

// Files yields the files one after the other, in the order of the bag. Without an
// inventory, they are those that Receive has read so far.
func (m *Metadata) Files(ctx context.Context) iter.Seq2[*File, error] {
	if !m.Known() {
		return m.read(ctx)
	}
	return func(yield func(*File, error) bool) {
		l, err := m.lists.Open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer l.Close()
		group := make([]*bag.File, 0, lookedUp)
		first, more := 0, true
		flush := func() {
			more = more && m.yield(ctx, l, first, group, yield)
			first, group = first+len(group), group[:0]
		}
		for f, err := range m.lists.Inventory() {
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

// yield hands on some files. The first has this index.
func (m *Metadata) yield(ctx context.Context, l *lists.Rows, first int, group []*bag.File, yield func(*File, error) bool) bool {
	results := map[int]string{}
	if m.reader.Progress != nil && m.Stages[m.pass] > 0 {
		indexes := make([]int, len(group))
		for i := range group {
			indexes[i] = first + i
		}
		var err error
		if results, err = m.reader.Progress.ResultsOf(ctx, m.Item.ID, m.pass, indexes); err != nil {
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
	known    lists.Known
	format   lists.Format
	isKnown  bool // the format is
	copies   lists.Copies
	verified bool // the copies are
}

func notedOf(l *lists.Rows, i int) (of noted, err error) {
	if of.known, _, err = l.Plan.At(i); err != nil {
		return of, err
	}
	if of.format, of.isKnown, err = l.Formats.At(i); err != nil {
		return of, err
	}
	of.copies, of.verified, err = l.Copies.At(i)
	return of, err
}

// file says what has become of a file; done is whether the stage that the item is at
// has finished it.
func (m *Metadata) file(i int, f *bag.File, l *lists.Rows, result string, done bool) (*File, error) {
	of := newItemFile(f)
	has, err := notedOf(l, i)
	if err != nil {
		return nil, err
	}
	finished := m.rank
	if done {
		finished++
	}
	passed := m.passed(finished)
	if makes(passed, lists.PlanName) && has.known.UUID != uuid.Nil {
		of.UUID = has.known.UUID.String()
	}
	of.State = stateAfter(passed, f, has.known)
	switch {
	case makes(passed, lists.FormatsName) && has.isKnown:
		of.identified(has.format)
	case done && makes(passed[m.rank:], lists.FormatsName):
		if as, _, ok := lists.UnpackFormat(i, result); ok {
			of.identified(as)
		}
	}
	if lists.IsStored(f, has.known) {
		m.copied(of, has, passed)
	}
	if fault, ok := m.failed[f.Path]; ok && !done {
		of.State, of.Code, of.Message = fileFailed, fault.Code, fault.Message
	}
	return of, nil
}

// copied adds the copies of a file that there are after these stages.
func (m *Metadata) copied(of *File, has noted, passed []Stage) {
	switch {
	case makes(passed, lists.CopiesName) && has.verified:
		of.copied(has.copies.Copies)
	case slices.ContainsFunc(passed, func(s Stage) bool { return s.File == Copied }):
		for _, target := range storage.TargetsOf(m.lists.Plan.StorageOption) {
			of.Copies = append(of.Copies, Copy{Target: target})
		}
	}
}

// stateAfter is the state of a file of an ingest that has passed some stages.
func stateAfter(passed []Stage, f *bag.File, k lists.Known) string {
	state := Received
	for _, s := range passed {
		state = cmp.Or(s.File, state)
	}
	switch {
	case f.Missing:
		return fileMissing
	case !f.Preservable():
		return filePackaging
	case makes(passed, lists.PlanName) && k.Unchanged:
		return fileUnchanged
	case state == Added && k.UUID != uuid.Nil:
		return fileReplaced
	}
	return state
}
