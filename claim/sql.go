package claim

import (
	_ "embed" // the statements
	"strings"

	"github.com/farol-preservation/farol/registry"
)

// The queue's statements, each whole in a file of its own that begins with what it does
// and the indexes that it relies on, but for those that ofRequests and peekOf make. Variants of a
// statement differ in what they must; tests compare them, and their plans.
var (
	//go:embed sql/claim_ingest.sql
	claimIngestSQL string
	//go:embed sql/behind_cursor_ingest.sql
	behindCursorIngestSQL string
	//go:embed sql/overdue_ingest.sql
	overdueIngestSQL string
	//go:embed sql/request_details.sql
	requestDetailsSQL string
	//go:embed sql/settle.sql
	settleSQL string
	//go:embed sql/settle_done.sql
	settleDoneSQL string
	//go:embed sql/sent_back.sql
	sentBackSQL string
	//go:embed sql/witnesses.sql
	witnessesSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/lapsed.sql
	lapsedSQL string
	//go:embed sql/held_by_dead.sql
	heldByDeadSQL string
	//go:embed sql/reap.sql
	reapSQL string
	//go:embed sql/reap_due.sql
	reapDueSQL string
	//go:embed sql/workers_died.sql
	workersDiedSQL string
	//go:embed sql/workers_unreaped.sql
	workersUnreapedSQL string
	//go:embed sql/workers_silent.sql
	workersSilentSQL string
	//go:embed sql/stage_settings.sql
	stageSettingsSQL string
	//go:embed sql/services.sql
	servicesSQL string
	//go:embed sql/served.sql
	servedSQL string
	//go:embed sql/tidy.sql
	tidySQL string
	//go:embed sql/archive.sql
	archiveSQL string
)

// Requests have an index of their own, in which those of each action are together.
//
//nolint:gochecknoglobals // constants, but for Go
var (
	claimRequestsSQL        = ofRequests(claimIngestSQL)
	peekIngestSQL           = peekOf(claimIngestSQL)
	peekRequestsSQL         = ofRequests(peekIngestSQL)
	behindCursorRequestsSQL = ofRequests(behindCursorIngestSQL)
	overdueRequestsSQL      = ofRequests(overdueIngestSQL)
)

// ofRequests makes of a statement for ingests the one for requests of one action. The planner
// takes their index only where the stage is a constant.
func ofRequests(ingests string) string {
	return strings.NewReplacer("_ingest", "_requests", "ingests", "requests of one action", "work_items_ready", "work_items_requested",
		"w.stage = stage.stage", "w.stage = 'Requested'", "w.stage = cursor.stage", "w.stage = 'Requested'",
		"w.stage = ANY (without.steps)", "w.action = ANY (without.steps)").Replace(ingests)
}

// peekOf makes of a statement that claims the one that lists what it would claim, in its
// order, and locks none of it.
func peekOf(claims string) string {
	_, found, _ := strings.Cut(claims, "AS note\n")
	found, _, _ = strings.Cut(found, "\t) found\n")
	const head = "-- peek_ingest: lists the ingests that claim_ingest would take, in its order, and takes\n" +
		"-- none. The parameters are those of claim_ingest, up to $15.\n" +
		"-- Index: work_items_ready, work_items_lease\n"
	return head + "SELECT ready.id\n" + strings.Replace(found, "\t\t\t\tFOR UPDATE SKIP LOCKED\n", "", 1)
}

// ofAction is the variant of a statement for an action.
func ofAction(action registry.Action, ingests, requests string) string {
	if action == registry.Ingest {
		return ingests
	}
	return requests
}
