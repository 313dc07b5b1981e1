package claim_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// model is what the queue has to do, without a database: items, tokens, leases
// and the ledger. It knows the rules only; how they are kept is not its matter.
type model struct {
	items    []*modelItem // in the order of their ids
	archived []*modelItem
	claims   []*modelClaim // all there ever were
	next     map[shareKey]int64
	served   map[int16]int64 // virtual times that are in the database
	taken    map[int16]int64 // virtual times that were claimed
	paused   map[registry.Stage]bool
	cap      int // of Record
	clock    int64
	messages []string
	changes  int // by hand
}

type shareKey struct {
	institution string
	band        int16
}

type modelItem struct {
	id                        int64
	institution, name, object string
	etag                      byte
	size                      int64
	band                      int16
	option                    string
	stage                     registry.Stage
	status, code              string
	token, entered            int64
	attempt, sentBack         int
	priority                  int16
	virtualStart              int64
	ready                     int64 // when it became due, by the model's clock
	delay                     int   // hours until it is due; 0: it is
	waits                     *modelItem
	retry, review             bool
	judged                    bool // Validate found it bad, and Receive has not read it since
	worker                    int  // engine; -1: none
	lapsed                    bool
	unseen                    [2]bool // it came to its place without that engine's doing
}

// modelClaim is a claim as the worker and the ledger have it.
type modelClaim struct {
	item          *modelItem
	engine        int
	of            claim.Item
	hold          *claim.Hold
	held          bool // the engine renews it
	outcome, code string
}

const (
	modelSmall = 1000
	modelLarge = 64<<20 + 5 // in the next size band
)

func newModel() *model {
	return &model{
		next: map[shareKey]int64{}, served: map[int16]int64{}, taken: map[int16]int64{}, paused: map[registry.Stage]bool{}, cap: 2,
	}
}

// modelStages are some of an ingest's, in their order, and after how many
// attempts at them an item is parked.
func modelStages() []registry.Stage {
	return []registry.Stage{"Receive", "Validate", "Store", "Record", "Cleanup"}
}

func isLate(stage registry.Stage) bool { return slices.Index(modelStages(), stage) >= 2 }

func topicOf(stage registry.Stage) string {
	return map[registry.Stage]string{
		"Receive": "ingest01_prefetch", "Validate": "ingest02_bag_validation", "Store": "ingest06_storage",
		"Record": "ingest08_record", "Cleanup": "ingest09_cleanup",
	}[stage]
}

// mostAttempts is by stage; the second engine has its own for Validate.
func mostAttempts(stage registry.Stage, engine int) int {
	switch {
	case stage == "Record":
		return 5
	case stage == "Validate" && engine == 1:
		return 2
	}
	return 3
}

// backoffHours is the wait after the nth failure: one hour, then two.
func backoffHours(n int) int { return min(n, 2) }

func (m *model) live(object string) (list []*modelItem) {
	for _, i := range m.items {
		if i.object == object && i.retry {
			list = append(list, i)
		}
	}
	return list
}

// lastInLine is the live item of an object that none waits for.
func (m *model) lastInLine(object string, besides *modelItem) (last *modelItem) {
	for _, i := range m.live(object) {
		waitedFor := slices.ContainsFunc(m.items, func(b *modelItem) bool { return b.waits == i })
		if i != besides && !waitedFor {
			last = i
		}
	}
	return last
}

func (m *model) takeTurn(i *modelItem) {
	if i.priority != 0 {
		i.virtualStart = m.served[i.band]
		return
	}
	key := shareKey{i.institution, i.band}
	i.virtualStart = max(m.served[i.band], m.next[key])
	m.next[key] = i.virtualStart + i.size + 1<<20
}

// due makes an item claimable from now on, or as soon as what it waits for ends.
func (m *model) due(i *modelItem) {
	i.ready, i.delay, i.unseen = m.clock, 0, [2]bool{true, true}
}

// leave takes an item from its worker: the latest claim can write no more.
func (m *model) leave(i *modelItem, outcome, code string) {
	if i.status == "Started" {
		c := m.latest(i)
		c.outcome, c.code = outcome, code
		switch {
		case i.stage == "Validate" && outcome == "fatal":
			i.judged = true
		case i.stage == "Receive" && outcome == "done":
			i.judged = false
		}
	}
	i.token++
	i.worker, i.lapsed = -1, false
}

func (m *model) latest(i *modelItem) *modelClaim {
	for _, c := range slices.Backward(m.claims) {
		if c.item == i {
			return c
		}
	}
	return nil
}

// end takes an item out of the queue and moves up what waited for it.
func (m *model) end(i *modelItem, status, code string) {
	before := i.waits
	if i.retry {
		for _, b := range m.items {
			if b.waits == i {
				b.waits = before
				m.due(b)
			}
		}
	}
	i.status, i.code, i.retry, i.waits = status, code, false, nil
	i.review = status == "Failed" || status == "Suspended"
	m.due(i)
}

// insert is what an upload does: the item, or nil if it is refused.
func (m *model) insert(i modelItem) *modelItem {
	m.clock++
	i.object = i.institution + "/" + strings.Split(i.name, ".")[0]
	others := m.live(i.object)
	if slices.ContainsFunc(others, func(o *modelItem) bool { return o.name == i.name && o.etag == i.etag }) {
		return nil
	}
	m.takeTurn(&i)
	for _, o := range others {
		if o.name == i.name && !isLate(o.stage) {
			m.leave(o, "cancelled", "superseded")
			m.end(o, "Cancelled", "superseded")
		}
	}
	i.status, i.retry, i.worker = "Pending", true, -1
	i.waits = m.lastInLine(i.object, nil)
	m.due(&i)
	m.items = append(m.items, &i)
	return &i
}

// byHand is what a typed UPDATE does; ok is false if it is refused.
func (m *model) byHand(i *modelItem, stage registry.Stage, status string) (ok bool) {
	m.clock++
	order := func(s registry.Stage) int { return slices.Index(modelStages(), s) }
	switch {
	case stage == i.stage && status == i.status:
		return true
	case i.status == "Success" || i.status == "Cancelled":
		return false
	case stage != i.stage && status == "Started" && i.status == "Started":
		status = "Pending" // only the stage was typed
	}
	switch status {
	case "Pending":
		if order(stage) > order(i.stage) || m.hasSuccessor(i) {
			return false
		}
		if i.judged {
			stage = "Receive"
		}
		if !i.retry {
			if slices.ContainsFunc(m.live(i.object), func(o *modelItem) bool { return o.name == i.name && o.etag == i.etag }) {
				return false
			}
			i.waits = m.lastInLine(i.object, i)
		}
		m.takeTurn(i)
		m.leave(i, "cancelled", "by-hand")
		i.stage, i.status, i.code, i.entered, i.attempt = stage, status, "", i.token, 0
		i.retry, i.review = true, false
		m.due(i)
		m.messages = append(m.messages, fmt.Sprintf("%s %d", topicOf(stage), i.id))
	case "Failed", "Suspended", "Cancelled":
		if stage != i.stage {
			return false
		}
		m.leave(i, "cancelled", "by-hand")
		m.end(i, status, "by-hand")
	default:
		return false
	}
	m.changes++
	return true
}

// hasSuccessor reports whether a newer version of the bag is there or in work.
func (m *model) hasSuccessor(i *modelItem) bool {
	return slices.ContainsFunc(slices.Concat(m.items, m.archived), func(o *modelItem) bool {
		return o.id > i.id && o.institution == i.institution && o.name == i.name && (o.retry || o.status == "Success")
	})
}

// claim notes that an engine has claimed an item.
func (m *model) claim(engine int, i *modelItem, of claim.Item) *modelClaim {
	i.status, i.worker, i.lapsed, i.unseen = "Started", engine, false, [2]bool{}
	i.token++
	i.attempt++
	m.taken[i.band] = max(m.taken[i.band], i.virtualStart)
	c := &modelClaim{item: i, engine: engine, of: of, held: true}
	m.claims = append(m.claims, c)
	return c
}

// reap ends the claims that have lapsed, and returns how many.
func (m *model) reap(engine int) (n int) {
	m.clock++
	for _, i := range m.items {
		if i.status != "Started" || !i.lapsed {
			continue
		}
		n++
		m.leave(i, "lease expired", "lease-expired")
		if i.attempt >= mostAttempts(i.stage, engine) {
			m.end(i, "Suspended", "lease-expired")
			continue
		}
		i.status, i.code = "Pending", "lease-expired"
		m.due(i)
		i.delay = backoffHours(i.attempt)
	}
	return n
}

// claimable lists what a filter allows of one partition, in its order.
func (m *model) claimable(f claim.Filter, stage registry.Stage, band int16) (list []*modelItem) {
	for _, i := range m.items {
		most := f.MaxSize
		if most == 0 {
			most = 1 << 62
		}
		if i.status == "Pending" && i.stage == stage && i.band == band && i.delay == 0 && i.waits == nil &&
			!m.paused[stage] && i.size >= f.MinSize && i.size < most &&
			(len(f.Institutions) == 0 || slices.Contains(f.Institutions, i.institution)) &&
			(len(f.StorageOptions) == 0 || i.option == "" || slices.Contains(f.StorageOptions, i.option)) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b *modelItem) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.virtualStart, b.virtualStart), cmp.Compare(a.ready, b.ready), cmp.Compare(a.id, b.id))
	})
	return list
}

func (m *model) running(stage registry.Stage) (n int) {
	for _, i := range m.items {
		if i.stage == stage && i.status == "Started" {
			n++
		}
	}
	return n
}

// rows lists all items as rowsSQL does.
func (m *model) rows() string {
	var b strings.Builder
	number := func(n int64) { b.WriteString(strconv.FormatInt(n, 10)); b.WriteByte(' ') }
	word := func(s string) { b.WriteString(s); b.WriteByte('|') }
	for _, i := range m.items {
		number(i.id)
		word(string(i.stage))
		word(i.status)
		number(i.token)
		number(i.entered)
		number(int64(i.attempt))
		number(int64(i.priority))
		number(int64(i.band))
		number(i.virtualStart)
		b.WriteString(strconv.FormatBool(i.retry) + " " + strconv.FormatBool(i.review) + " ")
		switch {
		case i.waits != nil:
			b.WriteString("behind ")
			number(i.waits.id)
		case i.delay > 0:
			b.WriteString("in ")
			number(int64(i.delay))
		}
		if i.status == "Started" {
			b.WriteString(map[bool]string{true: "lapsed of ", false: "held by "}[i.lapsed])
			number(int64(i.worker))
		}
		word(i.code)
		b.WriteByte('\n')
	}
	return b.String()
}

// ledger lists all claims as ledgerSQL does.
func (m *model) ledger() string {
	claims := slices.Clone(m.claims)
	slices.SortFunc(claims, func(a, b *modelClaim) int {
		return cmp.Or(cmp.Compare(a.item.id, b.item.id), cmp.Compare(a.of.Token, b.of.Token))
	})
	var b strings.Builder
	for _, c := range claims {
		fmt.Fprintf(&b, "%d %d %s %d by %d: %s %s\n", c.item.id, c.of.Token, c.of.Stage, c.of.Attempt, c.engine, c.outcome, c.code)
	}
	slices.Sort(m.messages)
	for _, s := range m.messages {
		b.WriteString(s + "\n")
	}
	for _, i := range m.items {
		if i.retry {
			fmt.Fprintf(&b, "live %d\n", i.id)
		}
	}
	for _, i := range m.archived {
		fmt.Fprintf(&b, "archived %d\n", i.id)
	}
	fmt.Fprintf(&b, "%d changes", m.changes)
	return b.String()
}
