package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

func itemShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show all that is known of an item",
		Long: `Show an item: where it stands and what it waits for, how far its stage has come in
files and bytes, at what rate and for how long still, every attempt, and what is on
record of its object. "item watch" follows it, "item explain" says why.`,
		Example: `  farol item show 7
  farol item show 7 --json`,
		Args: oneArg("item by its ID"),
		RunE: showing(readItem, &asJSON),
	}
	jsonFlag(c, &asJSON)
	return c
}

// printable is something about an item, for people and as JSON.
type printable interface{ print(w io.Writer) error }

// showing is a command that reads something about one item and prints it.
func showing[P printable](read func(ctx context.Context, id int64, warnings io.Writer) (P, error), asJSON *bool) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := itemID(args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		defer cancel()
		p, err := read(ctx, id, cmd.ErrOrStderr())
		switch {
		case err != nil:
			return err
		case *asJSON:
			return writeJSON(cmd.OutOrStdout(), p)
		}
		return p.print(cmd.OutOrStdout())
	}
}

// itemView is all that is known of an item.
type itemView struct {
	Item     registry.WorkItem  `json:"item"`
	Request  requests.Request   `json:"request"` // empty of an ingest
	State    string             `json:"state"`   // for people: what happens next, or must
	Current  stageView          `json:"current"`
	Attempts []registry.Attempt `json:"attempts"`
	Warnings []string           `json:"warnings"` // about the bag
	Changes  []registry.Change  `json:"changes"`  // by hand
	Progress []stageProgress    `json:"progress"` // null if Redis did not answer
	Object   *objectView        `json:"object"`   // null if it is not on record
	Events   []registry.Event   `json:"events"`   // of the object itself
}

type stageProgress struct {
	Stage string `json:"stage"`
	Files int64  `json:"files"` // that it has finished
}

type objectView struct {
	registry.Object
	Summary registry.ObjectSummary `json:"summary"`
}

// readItem reads what is known of an item. Where only Redis does not answer, the
// rest is shown: whoever looks has trouble enough.
func readItem(ctx context.Context, id int64, warnings io.Writer) (*itemView, error) {
	v := &itemView{Attempts: []registry.Attempt{}, Changes: []registry.Change{}, Events: []registry.Event{}}
	err := withItem(ctx, id, func(c itemConfig, r *registry.Registry, item registry.WorkItem, attempts []registry.Attempt) error {
		v.Item, v.State, v.Attempts = item, stateOf(item, time.Now()), append(v.Attempts, attempts...)
		v.Warnings = interim.WarningsOf(attempts)
		changes, err := r.Changes(ctx, id)
		if err != nil {
			return err
		}
		v.Changes = append(v.Changes, changes...)
		if v.Request, err = requests.In(r).RequestOf(ctx, item); err != nil {
			return err
		}
		if err := v.readObject(ctx, r); err != nil {
			return err
		}
		if err := v.readProgress(ctx, c.Redis); err != nil {
			fmt.Fprintln(warnings, "The progress of files is not known:", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// withItem hands an item and its attempts to do, with what else may be asked about it.
func withItem(ctx context.Context, id int64, do func(itemConfig, *registry.Registry, registry.WorkItem, []registry.Attempt) error) error {
	config, err := load(readItemConfig)
	if err != nil {
		return err
	}
	s, err := connect(ctx, "item", needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.close()
	item, err := s.registry.WorkItem(ctx, id)
	if err != nil {
		return err
	}
	attempts, err := s.registry.Attempts(ctx, id)
	if err != nil {
		return err
	}
	return do(config, s.registry, item, attempts)
}

// withProgress hands the progress of items to do, whom it gives little time.
func withProgress(ctx context.Context, c redisConfig, do func(context.Context, *progress.Store) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := progress.Connect(ctx, string(c.URL), progressPrefix)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // only read
	return do(ctx, store)
}

func (v *itemView) readObject(ctx context.Context, r *registry.Registry) error {
	object, err := r.Object(ctx, v.Item.ObjectIdentifier)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Object = &objectView{Object: object}
	if v.Object.Summary, err = r.Summary(ctx, object.ID); err != nil {
		return err
	}
	events, err := r.ObjectEvents(ctx, object.ID)
	v.Events = append(v.Events, events...)
	return err
}

// readProgress reads what Redis knows of an item.
func (v *itemView) readProgress(ctx context.Context, c redisConfig) (err error) {
	v.Current, _ = readStage(ctx, nil, v.Item)
	return withProgress(ctx, c, func(ctx context.Context, store *progress.Store) error {
		summary, err := store.Summary(ctx, v.Item.ID)
		if err != nil {
			return err
		}
		v.Progress = filesByStage(summary)
		found, _, err := store.Faults(ctx, v.Item.ID)
		if err != nil {
			return err
		}
		v.Warnings = append(v.Warnings, warningsAtEnd(found, v.Attempts)...)
		v.Current, err = readStage(ctx, store, v.Item)
		return err
	})
}

// warningsAtEnd are what was odd of a bag that the last attempt found invalid.
func warningsAtEnd(found progress.Faults, attempts []registry.Attempt) (list []string) {
	if n := len(attempts); n == 0 || found.Token != attempts[n-1].ClaimToken {
		return nil
	}
	for _, f := range found.Warnings {
		list = append(list, f.Message)
	}
	return list
}

// filesByStage adds up by stage what is finished. A stage that was begun anew has
// one entry for each time, "Store@12"; the newest counts.
func filesByStage(summary map[string]int64) []stageProgress {
	files, passes := map[string]int64{}, map[string]int64{}
	for name, n := range summary {
		stage, pass, _ := strings.Cut(name, "@")
		number, _ := strconv.ParseInt(pass, 10, 64) // 0 for a stage without passes
		if _, known := files[stage]; !known || number > passes[stage] {
			files[stage], passes[stage] = n, number
		}
	}
	order := allStages()
	list := []stageProgress{}
	for _, stage := range slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a), slices.Index(order, b)), cmp.Compare(a, b))
	}) {
		list = append(list, stageProgress{stage, files[stage]})
	}
	return list
}

// stateOf says what happens to an item next, or what has to.
func stateOf(i registry.WorkItem, now time.Time) string {
	switch {
	case i.Status == "Started" && i.LeaseExpiresAt != nil && i.Node != nil && i.PID != nil:
		return fmt.Sprintf("in work on %s, process %d, which has it for %s unless it renews that",
			plain(*i.Node), *i.PID, spanOf(i.LeaseExpiresAt.Sub(now)))
	case i.WaitsFor != nil:
		return fmt.Sprintf("it waits until item %d of the same object has ended", *i.WaitsFor)
	case i.Status == "Pending" && i.RunAt != nil && i.RunAt.After(now):
		return fmt.Sprintf("it may be claimed in %s", spanOf(i.RunAt.Sub(now)))
	case i.Status == "Pending":
		return "it waits for a worker"
	case i.Status == "Success":
		return "done"
	case i.Status == "Cancelled":
		return fmt.Sprintf("ended for good; `farol item explain %d` says how to have it after all", i.ID)
	case i.Status == "Failed" && i.Action == "Ingest":
		return fmt.Sprintf("a corrected bag can be uploaded; if the bag is not to blame, `farol item requeue %d`", i.ID)
	}
	return fmt.Sprintf("it waits for a person: `farol item requeue %d` or `farol item cancel %d`", i.ID, i.ID)
}

func (v *itemView) print(w io.Writer) error {
	i := v.Item
	lines := [][]string{
		{"Action", i.Action},
		{"Status", i.Status + " at " + i.Stage},
		{"Next", v.State},
		{"Bag", fmt.Sprintf("%s in %s, %s, uploaded %s", plain(i.Name), plain(i.Bucket), sizeOf(i.Size), at(i.BagDate))},
		{"ETag", plain(i.ETag)},
		{"Institution", i.Institution},
		{"Object", plain(i.ObjectIdentifier)},
	}
	lines = append(lines, requestLines(i, v.Request)...)
	lines = append(lines, [][]string{
		{"Queued", at(i.CreatedAt) + ", " + spanOf(time.Since(i.CreatedAt)) + " ago"},
		{"Attempt", strconv.Itoa(i.Attempt) + " of this stage"},
		{"Note", plain(i.Note)},
	}...)
	if i.Outcome != "" {
		lines = append(lines, []string{"Outcome", plain(i.Outcome)})
	}
	if i.ErrorCode != "" {
		lines = append(lines, []string{"Error code", i.ErrorCode})
	}
	if i.NeedsAdminReview {
		lines = append(lines, []string{"Review", "a person has to look at it"})
	}
	for _, warning := range v.Warnings {
		lines = append(lines, []string{"Warning", plain(warning)})
	}
	lines = append(lines, v.progressLines()...)
	if err := writeTable(w, []string{"Item", strconv.FormatInt(i.ID, 10)}, lines); err != nil {
		return err
	}
	if err := v.printAttempts(w); err != nil {
		return err
	}
	var b strings.Builder
	heading(&b, "Changed by hand", changesOf(v.Changes))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return v.printObject(w)
}

// progressLines are those about the stage that the item is at. Where nothing was
// counted of it, they say what it keeps for the next attempt.
func (v *itemView) progressLines() (lines [][]string) {
	c := v.Current
	if c.Of > 0 {
		lines = append(lines, []string{"Stage", fmt.Sprintf("%d of %d", c.Number, c.Of)})
	}
	switch {
	case c.FilesDone != nil:
		lines = append(lines, []string{"Progress", c.Stage + ": " + c.done()})
	case len(v.Progress) > 0:
		for _, p := range v.Progress {
			lines = append(lines, []string{"Progress", p.Stage + ": " + count(p.Files, "file", "files") + " finished"})
		}
	case v.Item.Status == "Started" && c.counts():
		lines = append(lines, []string{"Progress", c.Stage + ": " + c.done()})
	}
	if v.Item.Status != "Started" || c.FilesDone == nil {
		return lines
	}
	lines = append(lines, []string{"Rate", c.pace()})
	for _, hand := range c.hands() {
		lines = append(lines, []string{"In hand", hand})
	}
	return lines
}

func (v *itemView) printAttempts(w io.Writer) error {
	var rows [][]string
	for _, a := range v.Attempts {
		outcome, end := "running", time.Now()
		if a.Outcome != nil && a.EndedAt != nil {
			outcome, end = *a.Outcome, *a.EndedAt
		}
		what := plain(a.Error)
		if a.FileInHand != "" {
			what = strings.TrimSpace(what + " (file in hand: " + plain(a.FileInHand) + ")")
		}
		rows = append(rows, []string{
			a.Stage, strconv.Itoa(a.Attempt), at(a.ClaimedAt), spanOf(end.Sub(a.ClaimedAt)), outcome, a.ErrorCode,
			fmt.Sprintf("%s/%d", plain(a.Node), a.PID), what,
		})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprint(w, "\nNo worker has claimed it yet.\n")
		return err
	}
	fmt.Fprintln(w)
	return writeTable(w, []string{"STAGE", "TRY", "CLAIMED", "TOOK", "OUTCOME", "CODE", "NODE/PID", "ERROR"}, rows)
}

func (v *itemView) printObject(w io.Writer) error {
	if v.Object == nil {
		return nil
	}
	o, s := v.Object, v.Object.Summary
	rows := [][]string{
		{"Title", plain(o.Title)},
		{"State", o.State + ", access " + o.Access},
		{"Stored", fmt.Sprintf("%s, %s, in %s (%s)", count(s.Files, "file", "files"), sizeOf(s.Bytes), count(s.Copies, "copy", "copies"), o.StorageOption)},
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Events)) {
		rows = append(rows, []string{"Events", fmt.Sprintf("%d × %s", s.Events[kind], kind)})
	}
	fmt.Fprintln(w)
	if err := writeTable(w, []string{"On record", plain(o.Identifier)}, rows); err != nil {
		return err
	}
	var events [][]string
	for _, e := range v.Events {
		events = append(events, []string{at(e.DateTime), e.EventType, e.Outcome, plain(e.OutcomeInformation)})
	}
	fmt.Fprintln(w)
	return writeTable(w, []string{"WHEN", "EVENT OF THE OBJECT", "OUTCOME", "WHAT"}, events)
}
