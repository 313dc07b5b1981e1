package ops

import (
	"net/url"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/reply"
)

// Call is what to do about a refusal, as a sentence with an operation; "" if its code has
// none.
func Call(code string, args map[string]string) string {
	return human.Fill(calls()[code], args, url.PathEscape)
}

func calls() map[string]string {
	return map[string]string{
		"condition-failed":      "Correct the condition; GET /api/v1/items filters items without one.",
		"delete-again":          "Ask for it again with POST /api/v1/deletions.",
		"deletion-not-approved": "Request the deletion with POST /api/v1/deletions; another person approves it with POST /api/v1/deletions/ID/approve.",
		"item-is-one-upload":    "End it with POST /api/v1/items/{item}/cancel, and upload the bag as it should be.",
		"item-not-running":      "GET /api/v1/items/{item}/explain says what it waits for.",
		"item-waits":            "GET /api/v1/items/{item}/explain says what that one waits for.",
		"newer-item":            "End this one with POST /api/v1/items/{item}/cancel.",
		"no-pause":              "GET /api/v1/stages lists the pauses.",
		"no-user":               "Register the person with POST /api/v1/users.",
		"not-at-stage":          "GET /api/v1/items/{item}/requeue lists the stages that it can be requeued to.",
		"paused-by-others":      "GET /api/v1/stages lists the pauses; POST /api/v1/stages/resume with pause ends one.",
		"permanent-attempt":     "POST /api/v1/items/{item}/requeue has the item tried again.",
		"permanent-item":        "End it with POST /api/v1/items/{item}/cancel; the archive takes it later.",
		"permanent-records":     "POST /api/v1/items/ID/cancel ends an item; POST /api/v1/stages/pause stops work on all.",
		"restore-again":         "Ask for it again with POST /api/v1/restorations.",
		"stage-kept":            "Pause it with POST /api/v1/stages/Ingest/{stage}/pause.",
		"stages-by-function":    "Add a stage with POST /api/v1/stages.",
		"too-many-by-hand":      "Change many items with POST /api/v1/plans.",
		"written-by-queue":      "GET /api/v1/items/{item}/explain says what it waits for; POST /api/v1/items/{item}/requeue has it tried again.",
	}
}

// advised adds to a problem what the caller can do about it.
func advised(p *reply.Problem, r *registry.Refused) *reply.Problem {
	if r != nil && r.Code != "" {
		p.Rule, p.Args, p.Next = r.Code, r.Args, Call(r.Code, r.Args)
	}
	return p
}
