package preserved_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

var (
	modelHistories = flag.Int("preserved.histories", histories(), "how many random histories are compared with the model")
	modelSeed      = flag.Uint64("preserved.seed", 0, "run this one history; 0: those from -preserved.first on")
	modelFirst     = flag.Uint64("preserved.first", 1, "seed of the first history")
	modelHistory   = flag.String("preserved.history", "", "run this history, such as \"deposit a 0; run; lose a 1 0; check a\"")
)

// histories is how many there are: 10,000 in a whole soak. Elsewhere there are fewer than a
// twentieth of them.
func histories() int {
	const whole, few = 10_000, 200
	if testenv.Soak(whole) == whole {
		return whole
	}
	return few
}

// lanes is how many histories run at once, each in a world that others have used before.
const lanes = 3

// A step is a verb and numbers, which it takes for what they may stand for: so any step can
// follow any other, and what is left of a history when some are taken out is one, too.
type step struct {
	verb string
	n    []int
}

func (s step) String() string {
	text := s.verb
	for _, n := range s.n {
		text += " " + strconv.Itoa(n)
	}
	return text
}

// at is a number of the step; 0 if it has none there.
func (s step) at(i int) int {
	if i >= len(s.n) {
		return 0
	}
	return s.n[i]
}

type history []step

func (h history) String() string {
	texts := make([]string, len(h))
	for i, s := range h {
		texts[i] = s.String()
	}
	return strings.Join(texts, "; ")
}

// historyOf reads what String has written.
func historyOf(t testing.TB, text string) (h history) {
	t.Helper()
	for one := range strings.SplitSeq(text, ";") {
		words := strings.Fields(one)
		if len(words) == 0 {
			continue
		}
		s := step{verb: words[0]}
		if !slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == s.verb }) {
			t.Fatalf("there is no step %q", s.verb)
		}
		for _, w := range words[1:] {
			n, err := strconv.Atoi(w)
			if err != nil {
				t.Fatalf("step %q: %v", one, err)
			}
			s.n = append(s.n, n)
		}
		h = append(h, s)
	}
	return h
}

// randomHistory is the history of a seed. It begins with a deposit that is ingested. Some steps
// mean something only after others, and so come with them more often than not.
func randomHistory(seed uint64) history {
	r := rand.New(rand.NewPCG(seed, 43))
	draw := func(names ...string) step {
		name := names[r.IntN(len(names))]
		i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == name })
		s := step{verb: verbs()[i].name}
		for _, most := range verbs()[i].most {
			s.n = append(s.n, r.IntN(most))
		}
		return s
	}
	var all []string
	for _, v := range verbs() {
		all = append(all, slices.Repeat([]string{v.name}, v.often)...)
	}
	h := history{{"deposit", []int{0, r.IntN(len(versions()))}}, {"run", []int{0, r.IntN(2)}}}
	for range 2 + r.IntN(5) {
		s := draw(all...)
		h = append(h, s)
		if r.IntN(4) == 0 {
			continue
		}
		switch s.verb {
		case "ask":
			h = append(h, step{"approve", []int{r.IntN(2)}}, draw("run", "kill", "deny", "cancel", "cancel-at", "cancel-at", "withdraw", "kill"))
		case "deposit":
			h = append(h, draw("run", "run", "kill", "restage"))
		case "restore":
			h = append(h, draw("run", "kill", "flip", "deny"))
		case "restage", "kill":
			h = append(h, draw("run", "restage"))
		}
	}
	return h
}

// shortest takes steps out of a history as long as it still fails in the same way.
func shortest(h history, fails func(history) bool) history {
	for size := len(h) / 2; size > 0; {
		removed := false
		for i := 0; i+size <= len(h); {
			shorter := slices.Concat(h[:i], h[i+size:])
			if fails(shorter) {
				h, removed = shorter, true
				continue
			}
			i += size
		}
		if !removed || size > len(h) {
			size /= 2
		}
	}
	return h
}

// Whatever is deposited, deleted, cancelled, lost, repaired and given back, by whoever, and
// wherever a worker dies: each file has its promised copies or a finding that names them, what
// was deleted is gone with its receipts, and events are those that the acts make.
func TestHistoriesPreserveWhatTheyShould(t *testing.T) {
	t.Parallel()
	if *modelHistory != "" {
		judge(t, newWorld(t), "-preserved.history", historyOf(t, *modelHistory))
		return
	}
	if *modelSeed != 0 {
		judge(t, newWorld(t), fmt.Sprintf("-preserved.seed %d", *modelSeed), randomHistory(*modelSeed))
		return
	}
	var next, failed atomic.Uint64
	next.Store(*modelFirst - 1)
	last := *modelFirst + uint64(*modelHistories)
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				for seed := next.Add(1); seed < last && failed.Load() < 3; seed = next.Add(1) {
					if !judge(t, w, fmt.Sprintf("-preserved.seed %d", seed), randomHistory(seed)) {
						failed.Add(1)
					}
				}
			})
		}
	})
	testenv.Soaked(t, *modelHistories, "random histories compared with the model of what is preserved")
}

// judge runs a history. If it is wrong, it says so with the shortest that is wrong in the same way.
func judge(t *testing.T, w *world, again string, h history) (right bool) {
	t.Helper()
	wrong := w.live(h)
	if len(wrong) == 0 {
		return true
	}
	kind := wrong[0].kind
	tries := 0
	short := shortest(h, func(h history) bool {
		if tries++; tries > 120 {
			return false
		}
		return slices.ContainsFunc(w.live(h), func(v violation) bool { return v.kind == kind })
	})
	of := w.live(short)
	if len(of) == 0 { // it depends on more than the steps
		short, of = h, wrong
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	t.Errorf("a history went wrong: go test ./preserved -run %s %s\n%s\nwhole: %s\nshortest: -preserved.history '%s'\n%s",
		name, again, texts(wrong), h, short, texts(of))
	return false
}

func texts(list []violation) string {
	var b strings.Builder
	for _, v := range list {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// violation is a rule that a history broke, and where.
type violation struct {
	kind string // stable
	step string
	text string
}

func (v violation) String() string { return fmt.Sprintf("%s, after %q: %s", v.kind, v.step, v.text) }

// lived counts the histories of all worlds, for the names of their objects.
//
//nolint:gochecknoglobals // a name is used once
var lived atomic.Int64

// life is a history that runs.
type life struct {
	*world

	names   []string // of its bags
	touched [2]bool  // bags that were deposited
	step    string   // that is done now
	verdict []violation

	contents map[string]string           // by SHA-256
	bags     map[int64]map[string]string // preserved files, by the item of an ingest
	ended    map[int64]string            // status in which items were seen last
	harmed   map[string]bool             // bucket/key of copies that were harmed and that nobody has seen since
	files    map[string]*seenFile        // by identifier
	objects  map[string]*seenObject      // by identifier
}

func (w *world) life() *life {
	n := lived.Add(1)
	return &life{
		world: w, names: []string{fmt.Sprintf("h%d-a", n), fmt.Sprintf("h%d-b", n)}, contents: map[string]string{}, bags: map[int64]map[string]string{},
		ended: map[int64]string{}, harmed: map[string]bool{}, files: map[string]*seenFile{}, objects: map[string]*seenObject{},
	}
}

// live runs a history from its first step to what must still be possible at its end.
func (w *world) live(h history) []violation {
	l := w.life()
	l.steps(h)
	if len(l.verdict) == 0 {
		l.end()
	}
	l.leave()
	return l.verdict
}

// steps does the steps of a history, up to the first that goes wrong.
func (l *life) steps(h history) {
	l.keepFor(0)
	for _, s := range h {
		i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == s.verb })
		l.step = s.String()
		verbs()[i].do(l, s)
		l.observe(0)
		if len(l.verdict) > 0 {
			break
		}
	}
}

func (l *life) wrong(kind, format string, args ...any) {
	v := violation{kind, l.step, fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(l.verdict, func(o violation) bool { return o.kind == v.kind && o.text == v.text }) {
		l.verdict = append(l.verdict, v)
	}
}

// object is the identifier of an object.
func (l *life) object(n int) string { return "test.edu/" + l.names[n%len(l.names)] }

// ours are the identifiers of the objects of the history.
func (l *life) ours() []string { return []string{l.object(0), l.object(1)} }

// file is the identifier of a payload file of an object.
func (l *life) file(object, n int) string { return l.object(object) + "/data/" + string("xyz"[n%3]) }
