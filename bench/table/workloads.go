package table

import "slices"

// A workload is bags that arrive at the same time. Those of W1 to W3 were measured with the
// system that Farol replaces.
type workload struct {
	name   string
	bags   int
	files  int   // of each bag
	size   int64 // of each file, bytes
	rounds int   // one after another; the median of their times counts
	wall   float64
	cpu    float64 // seconds that are the goal, both
}

func workloads() []workload {
	return []workload{
		{name: "W1", bags: 30, files: 20, size: 64 << 10, rounds: 1, wall: 3.0, cpu: 5.5},
		{name: "S", bags: 1, files: 20, size: 64 << 10, rounds: 9, wall: 0.15, cpu: 0.25},
		{name: "W2", bags: 1, files: 3000, size: 1 << 10, rounds: 1, wall: 3.0, cpu: 4.5},
		{name: "W3", bags: 3, files: 1, size: 512 << 20, rounds: 1, wall: 9, cpu: 16},
		{name: "W4", bags: 2000, files: 3, size: 4 << 10, rounds: 1, wall: 35, cpu: 60},
		{name: "W5", bags: 1, files: 30_000, size: 4 << 10, rounds: 1, wall: 30, cpu: 50},
	}
}

// transitionsName is the workload that has no bags: transitions a second, by 8 workers that
// claim 100 items at a time.
const (
	transitionsName = "transitions"
	transitionsGoal = 45_000
)

// stages are how many an ingest goes through.
const stages = 9

// need is what a resource has to do for a workload at the least, in seconds.
type need struct {
	of      string
	seconds float64
}

// least says which resource of the machine a round of a workload needs for longest, however
// it is done: two copies of each of so many files are put, each byte has its four digests,
// each file its format, and each transition is a commit. The digests have all cores.
func (w workload) least(stored int, l limits, cores int) need {
	bytes := float64(w.bags) * float64(w.files) * float64(w.size)
	copies := 2 * float64(stored) / l[put]
	if w.size >= partSize {
		copies = 2 * bytes / 1e6 / l[part]
	}
	identified := l[identifyNoise]
	if w.size < 32<<10 {
		identified = l[identifyText]
	}
	digests := 1/l[md5Rate] + 1/l[sha1Rate] + 1/l[sha256Rate] + 1/l[sha512Rate]
	return slices.MaxFunc([]need{
		{"gateway", copies},
		{"digests", bytes / 1e6 * digests / float64(cores)},
		{"formats", float64(w.bags*w.files) / identified},
		{"commits", float64(w.bags*stages) / l[commits]},
		{"disk", 2 * bytes / 1e6 / l[disk]},
	}, func(a, b need) int {
		switch {
		case a.seconds < b.seconds:
			return -1
		case a.seconds > b.seconds:
			return 1
		}
		return 0
	})
}
