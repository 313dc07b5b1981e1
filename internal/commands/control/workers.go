package control

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// Workers is farol workers.
func Workers() *cobra.Command {
	return op.List[record.Worker]{
		Path: "workers", What: "workers", Header: []string{"WORKER", "NODE/PID", "RUNS", "SLOTS", "HEARTBEAT", "UP", ""},
		Row: func(w record.Worker) []string {
			slots, state := "", "serves HTTP"
			if w.Slots != nil {
				slots, state = strconv.Itoa(*w.Slots), "works"
			}
			if w.Draining {
				state = "draining"
			}
			return []string{
				human.Line(w.Worker), fmt.Sprintf("%s/%d", human.Line(w.Node), w.PID), strconv.Itoa(w.Running), slots,
				human.Duration(time.Duration(w.HeartbeatAgo * float64(time.Second))), human.Duration(time.Since(w.Started)), state,
			}
		},
	}.All(op.Command{
		Use:   "workers",
		Short: "List live worker processes",
	})
}

// Drain is farol drain.
func Drain() *cobra.Command {
	return op.Change(op.Command{
		Use:   "drain WORKER",
		Short: "Drain a worker",
		Long: `Stop a worker, as SIGTERM does: it claims nothing more, gives running stages FAROL_GRACE
to end, and returns the other items to the queue. A farol serve ends too; programs keep
the items that they have leased. farol workers lists the names.`,
		Example: `  farol drain node-1-4711
  farol drain node-2-4712 --json`,
		Arg: "worker",
	}, http.MethodPost, "workers/{}/drain", "`farol workers` lists the live workers", func(w record.Worker) string {
		return fmt.Sprintf("%s is draining; %s in progress.\n", human.Line(w.Worker), human.Count(w.Running, "item", "items"))
	})
}
