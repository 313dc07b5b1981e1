package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/storage"
)

// poolSyntax is how a pool is written, in a flag, the environment or a file.
const poolSyntax = `NAME=STAGES;min=SIZE;max=SIZE;age=TIME;slots=N;provider=NAME;institution=ID;help=no`

// PoolHelp explains the syntax of pools, for the help of commands.
const PoolHelp = `A pool is a number of slots for items of some stages and sizes, written

  ` + poolSyntax + `

STAGES is * for all, a range such as Receive..Cleanup, or a list separated by commas.
In addition to the stages of an ingest there are Restore File, Restore Object, Glacier
Restore and Delete, which process requests. min is inclusive, max is exclusive. age
excludes items that are younger than this, such as 24h. provider (AWS, Wasabi, or a
region such as Wasabi-VA) excludes items whose bag is stored elsewhere. institution
limits the pool to one institution's items, by its identifier, or to several separated
by commas. Any part you omit matches everything; slots defaults to 1. While a pool has
no items of its own, it helps the pools with the neighbouring sizes and keeps one slot
free; help=no forbids that.`

// mostSlots is more than any machine can work on.
const mostSlots = 10000

// DefaultPools are those of a worker that is not configured otherwise: large bags do not
// block small ones, and ingests and requests do not block each other.
func DefaultPools() []pipeline.Pool {
	const gib = 1 << 30
	in, out := StageNames(), namesOf(steps.Requests(pipeline.Deps{}))
	return []pipeline.Pool{
		{Name: "small", Stages: in, MaxSize: gib, Slots: 8},
		{Name: "large", Stages: in, MinSize: gib, Slots: 2},
		{Name: "requests", Stages: out, MaxSize: gib, Slots: 4},
		{Name: "large requests", Stages: out, MinSize: gib, Slots: 2},
	}
}

// parsePool reads one pool.
func parsePool(text string) (pipeline.Pool, error) {
	wrong := func(format string, args ...any) (pipeline.Pool, error) {
		return pipeline.Pool{}, fmt.Errorf("pool %q: %w; write %s", text, fmt.Errorf(format, args...), poolSyntax)
	}
	parts := strings.Split(text, ";")
	name, stages, ok := strings.Cut(parts[0], "=")
	p := pipeline.Pool{Name: strings.TrimSpace(name), Slots: 1}
	if !ok || p.Name == "" {
		return wrong("it must begin with NAME=STAGES")
	}
	var err error
	if p.Stages, err = ParseStages(stages); err != nil {
		return wrong("%w", err)
	}
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || value == "" {
			return wrong("unknown setting %q", part)
		}
		if seen[key] {
			return wrong("%s appears twice", key)
		}
		seen[key] = true
		if err := setPool(&p, key, value); err != nil {
			return wrong("%w", err)
		}
	}
	if p.MaxSize != 0 && p.MaxSize <= p.MinSize {
		return wrong("no item is at least %d and below %d bytes", p.MinSize, p.MaxSize)
	}
	return p, nil
}

func setPool(p *pipeline.Pool, key, value string) (err error) {
	switch key {
	case "min":
		p.MinSize, err = ParseSize(key, value)
	case "max":
		p.MaxSize, err = parseMax(value)
	case "age":
		if p.MinAge, err = time.ParseDuration(value); err != nil || p.MinAge <= 0 {
			err = fmt.Errorf("age is %q; it must be a duration such as 30m or 24h", value)
		}
	case "slots":
		p.Slots, err = parseSlots(value)
	case "provider":
		p.StorageOptions, err = optionsOf(value)
	case "institution":
		for _, in := range strings.Split(value, ",") {
			p.Institutions = append(p.Institutions, strings.TrimSpace(in))
		}
	case "help":
		if value != "yes" && value != "no" {
			return fmt.Errorf("help is %q; it must be yes or no", value)
		}
		p.Alone = value == "no"
	default:
		err = fmt.Errorf("unknown setting %q", key)
	}
	return err
}

func parseMax(text string) (int64, error) {
	n, err := ParseSize("max", text)
	if err == nil && n == 0 {
		err = errors.New("max is 0; omit it for no upper bound")
	}
	return n, err
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostSlots {
		return 0, fmt.Errorf("slots is %q; it must be a whole number from 1 to %d", text, mostSlots)
	}
	return n, nil
}

// ParseStages reads the stages of a pool: *, ranges and names, by comma.
func ParseStages(text string) ([]string, error) {
	all := StepNames()
	place := func(name string) (int, error) {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(s string) bool { return strings.EqualFold(s, name) })
		if i < 0 {
			return 0, fmt.Errorf("there is no stage %q; the stages are %s", name, strings.Join(all, ", "))
		}
		return i, nil
	}
	if strings.TrimSpace(text) == "*" {
		return all, nil
	}
	taken := make([]bool, len(all))
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "..")
		if !isRange {
			to = from
		}
		first, err := place(from)
		if err != nil {
			return nil, err
		}
		last, err := place(to)
		if err != nil {
			return nil, err
		}
		if last < first {
			return nil, fmt.Errorf("%s comes before %s", all[last], all[first])
		}
		for i := first; i <= last; i++ {
			taken[i] = true
		}
	}
	var stages []string
	for i, s := range all {
		if taken[i] {
			stages = append(stages, s)
		}
	}
	return stages, nil
}

// optionsOf lists the storage options whose targets are all of a provider, named
// in full or by its family.
func optionsOf(provider string) ([]string, error) {
	var options, providers []string
	for _, t := range storage.Targets() {
		if !slices.Contains(providers, t.Provider) {
			providers = append(providers, t.Provider)
		}
		family, _, _ := strings.Cut(t.Provider, "-")
		of := strings.EqualFold(provider, t.Provider) || strings.EqualFold(provider, family)
		if of && !slices.Contains(options, t.Option) {
			options = append(options, t.Option)
		}
	}
	if len(options) == 0 {
		return nil, fmt.Errorf("there is no provider %q; the providers are %s", provider, strings.Join(providers, ", "))
	}
	return options, nil
}

// ParsePools reads several pools, one a line or separated by |. What follows a #
// at the beginning of a line is a comment.
func ParsePools(text string) ([]pipeline.Pool, error) {
	var pools []pipeline.Pool
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		for _, one := range strings.Split(line, "|") {
			p, err := parsePool(strings.TrimSpace(one))
			if err != nil {
				errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
				continue
			}
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 && len(errs) == 0 {
		return nil, errors.New("there is no pool in it")
	}
	return pools, errors.Join(errs...)
}

// Pools are the pools of a worker.
type Pools struct {
	Text string `env:"FAROL_POOLS" is:"pools, one a line or separated by |" doc:"Pools of farol work in the syntax of --pool, one per line or separated by |"`

	List []pipeline.Pool // none: the default
}

func (c *Pools) check(s *reader) {
	if strings.TrimSpace(c.Text) == "" {
		return
	}
	var err error
	if c.List, err = ParsePools(c.Text); err != nil {
		name := "FAROL_POOLS"
		if s.environ[name] == "" {
			name += fileSuffix
		}
		s.wrong(name, "is wrong: "+err.Error())
	}
}

// ParseSize reads a number of bytes such as 64MiB; "" is 0.
func ParseSize(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := human.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %q; %w", name, text, err)
	}
	return n, nil
}

// StageNames are the ingest stages in their order.
func StageNames() []string { return namesOf(ingest.Steps(pipeline.Deps{})) }

// StepNames are all that a worker can do: the ingest stages, and what is requested
// by its action.
func StepNames() []string { return namesOf(steps.All(pipeline.Deps{})) }

func namesOf(steps []pipeline.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name())
	}
	return names
}
