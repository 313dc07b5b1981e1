package oracle

import "slices"

// Outcomes after which the attempt does not count.
func uncounted() []string {
	return []string{"held", "released", "snoozed", "done", "sent back", "cancelled"}
}

// Codes of leases that lapsed for what the item has no part in.
func surroundings() []string { return []string{"clock-set", "unreachable", "claim-lost"} }

// Spent tells whether an attempt cost the item one, or its end.
func (a Attempt) Spent() bool {
	return !slices.Contains(uncounted(), a.Outcome) && !slices.Contains(surroundings(), a.Code)
}

// ledger judges the attempts of one item, which are in the order of their tokens.
func (j *judge) ledger(bag Bag, item Item, attempts []Attempt) {
	spent, first := 0, Attempt{}
	for i, a := range attempts {
		if a.Ended.IsZero() {
			j.say("attempt-open", item, bag, "the attempt at %s by %s has not ended", a.Stage, a.Worker)
		}
		if most, known := j.Most[a.Stage]; known && a.Number > most {
			j.say("too-many-attempts", item, bag, "attempt %d at %s, of %d", a.Number, a.Stage, most)
		}
		if bag.Wrong == "" && a.Spent() {
			if spent++; spent == 1 {
				first = a
			}
		}
		if i+1 < len(attempts) {
			j.follows(bag, item, a, attempts[i+1])
		}
	}
	if spent > 0 && !j.promise.Spends {
		j.say("attempt-spent", item, bag, "%d attempts spent; the first at %s: %s %s %s", spent, first.Stage, first.Outcome, first.Code, shorten(first.Error))
	}
}

// follows judges an attempt by the next of the same item.
func (j *judge) follows(bag Bag, item Item, a, next Attempt) {
	if !j.promise.Clock && (a.Ended.IsZero() || next.Claimed.Before(a.Ended)) {
		j.say("in-two-hands", item, bag, "%s had it at %s until %s, and %s took it at %s",
			a.Worker, a.Stage, a.Ended.Format("15:04:05.000"), next.Worker, next.Claimed.Format("15:04:05.000"))
	}
	free := slices.Contains([]string{"held", "released", "snoozed"}, a.Outcome) || a.Code == "claim-lost"
	if free && next.Stage == a.Stage && next.Number > a.Number {
		j.say("counted-though-"+a.Outcome, item, bag, "attempt %d at %s was %s, and the next is attempt %d", a.Number, a.Stage, a.Outcome, next.Number)
	}
}

// messages compares the topic log of an item that succeeded with its moves.
func (j *judge) messages(bag Bag, item Item, attempts []Attempt) {
	done, back := map[string]int{}, 0
	for _, a := range attempts {
		switch a.Outcome {
		case "done":
			done[a.Stage]++
		case "sent back":
			back++
		}
	}
	total := 0
	for stage := range j.Most {
		total += done[stage]
		if done[stage] == 0 {
			j.say("stage-not-done", item, bag, "%s was never done", stage)
		}
		if done[stage] > 1 && back == 0 && j.ByHand[item.ID] == 0 {
			j.say("stage-done-twice", item, bag, "%s was done %d times", stage, done[stage])
		}
	}
	said := j.Messages[item.ID]
	if want := total + back; j.ByHand[item.ID] == 0 && len(said) != want {
		j.say("messages", item, bag, "%d messages in the topic log, should be %d: one for its beginning and one for each move", len(said), want)
	}
	if back == 0 && j.ByHand[item.ID] == 0 && !slices.Equal(said, j.Topics) {
		j.say("messages-order", item, bag, "the topics are %v", said)
	}
}
