package main

import "slices"

// mutants are all mistakes; a name says what the program would then do.
func mutants() []mutant {
	return slices.Concat(ofClaims(), ofCarrying(), ofLeases(), ofRules(), ofTyping(), ofPlans(), ofRecords())
}

// ofClaims are the mistakes in what a claim takes, and where it looks.
func ofClaims() []mutant {
	return []mutant{
		mistake("claim-not-due", "claim/sql/claim_ingest.sql",
			`AND w.run_at <= now() AND w.action = $7 AND w.size >= $8`, `AND w.action = $7 AND w.size >= $8`,
			"./claim", "TestClaimTakesOnlyWhatItMay|TestBackoffGrowsToItsBound|TestOutcomes"),
		mistake("claim-not-rechecked", "claim/sql/claim_ingest.sql",
			`				FOR UPDATE SKIP LOCKED
			) first
			WHERE cursor.stage = stage.stage
			LIMIT stage.allowed
		) ready
		LIMIT $10
	) found
	WHERE w.ctid = found.place AND w.status = 'Pending' AND w.retry`, `			) first
			WHERE cursor.stage = stage.stage
			LIMIT stage.allowed
		) ready
		LIMIT $10
	) found
	WHERE w.id = (SELECT x.id FROM work_items x WHERE x.ctid = found.place)`,
			"./claim", "TestEachItemIsClaimedOnce|TestClaimPassesOverALockedItem"),
		mistake("claim-waits-for-locks", "claim/sql/claim_ingest.sql",
			`				FOR UPDATE SKIP LOCKED
`, ``,
			"./claim", "TestClaimPassesOverALockedItem"),
		mistake("claim-of-paused-stage", "claim/sql/claim_ingest.sql",
			`AND s.stage = c.stage AND NOT s.paused`, `AND s.stage = c.stage`,
			"./claim", "TestPausedStageIsNotClaimed"),
		mistake("cap-without-lock", "claim/scan.go",
			`SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`, `SELECT $1::text`,
			"./claim", "TestStageCapHoldsAcrossProcesses"),
		mistake("cursor-never-rescanned", "claim/cursor/cursor.go",
			`rescanEvery      = time.Second`, `rescanEvery      = 1000 * time.Hour`,
			"./claim/cursor", "TestEachPartitionIsRescannedEverySecond"),
		mistake("put-before-the-cursor", "claim/cursor/cursor.go",
			`		if p.Position.Before(t.from) {
			t.from = p.Position
		}`, ``,
			"./claim/cursor", "TestNextClaimSeesWhatWasMovedBeforeItsCursor"),
		mistake("virtual-start-not-recorded", "claim/claimer.go",
			`c.starts[item.Band] = max(c.starts[item.Band], item.At.VirtualStart)`, `c.starts[item.Band] = 0`,
			"./claim", "TestInstitutionsShareByBytes|TestWaitIsBoundedWhateverArrives"),
	}
}

// ofCarrying are the mistakes in carrying items on.
func ofCarrying() []mutant {
	return []mutant{
		mistake("carried-into-a-pause", "claim/sql/settle_done.sql",
			` AND s.stage = m.stage AND NOT s.paused`, ` AND s.stage = m.stage`,
			"./claim", "TestNothingIsCarriedIntoAPausedStage"),
		mistake("carried-beyond-the-cap", "claim/settle.go",
			`capped = append(capped, m.Stage)`, `_ = m.Stage`,
			"./claim", "TestCapHoldsForWhatIsCarriedOn|TestCarriedItemWaitsForTheCount"),
		mistake("carried-without-an-attempt", "claim/sql/settle_done.sql",
			`FROM moved m WHERE m.lease IS NOT NULL`, `FROM moved m WHERE false`,
			"./claim", "TestCarryingOnIsAnEndAndAClaim"),
		mistake("carried-past-others", "pipeline/places.go",
			`&& !p.empty[place{of.Name, step}]`, `&& false`,
			"./pipeline", "TestItemGoesOnWhereNoneWaits"),
	}
}

// ofLeases are the mistakes in ends, heartbeats and reaping.
func ofLeases() []mutant {
	return []mutant{
		mistake("settle-without-token", "claim/sql/settle_done.sql",
			`WHERE w.id = m.id AND w.claim_token = m.token`, `WHERE w.id = m.id`,
			"./claim", "TestStaleClaimChangesNothing|TestThousandZombiesChangeNothing"),
		mistake("settle-keeps-token", "claim/sql/settle_done.sql",
			`		claim_token        = w.claim_token + CASE WHEN m.lease IS NULL THEN 1 ELSE 2 END,
`, ``,
			"./claim", "TestOutcomes|TestStaleClaimChangesNothing"),
		mistake("move-without-token", "migrations/repeatable/21_transition.sql",
			`WHERE w.id = m.id AND w.claim_token = m.token
		RETURNING m AS move`, `WHERE w.id = m.id
		RETURNING m AS move`,
			"./claim", "TestStaleClaimChangesNothing"),
		mistake("heartbeat-without-token", "claim/sql/renew.sql",
			`w.id = held.id AND w.claim_token = held.token
	FOR NO KEY UPDATE`, `w.id = held.id
	FOR NO KEY UPDATE`,
			"./claim", "TestLateWorkerDoesNotRenewAnothersLease|TestLostItemStopsItsWork"),
		mistake("late-heartbeat-shortens", "claim/sql/renew.sql",
			`greatest(w.lease_expires_at, now() + mine.lease)`, `now() + mine.lease`,
			"./claim", "TestLateHeartbeatShortensNoLease"),
		mistake("crash-does-not-count", "claim/sql/reap.sql",
			`n.attempt >= m.most AND NOT`, `n.attempt > 1000 + m.most AND NOT`,
			"./claim", "TestCrashesCount|TestItemThatKillsItsWorkersIsParked"),
		mistake("reap-of-the-living", "claim/sql/reap.sql",
			`AND (lease_expires_at < now() OR worker = ANY ($6::text[]))`, ``,
			"./claim", "TestRenewedLeaseIsNotReaped"),
		mistake("late-for-too-long", "claim/hold.go",
			`h.late.Reset(d*2/3 - time.Since(asked))`, `h.late.Reset(d*3/2 - time.Since(asked))`,
			"./claim", "TestWorkEndsBeforeItsLease|TestWorkerSideKeepsItsPromises"),
	}
}

// ofRules are the mistakes in what a typed change does to an item.
func ofRules() []mutant {
	return []mutant{
		mistake("waiters-not-freed", "migrations/repeatable/22_ended_items.sql",
			`	WHERE waits_for = OLD.id;`, `	WHERE waits_for = -OLD.id;`,
			"./registry", "TestVersionsOfABagDoNotMeet|TestWaitingItemThatIsReplacedPassesItsPlaceOn"),
		mistake("typed-keeps-token", "migrations/repeatable/21_transition.sql",
			`w.claim_token + 1, -- the`, `w.claim_token, -- the`,
			"./registry", "TestChangesByHand|TestWhateverIsTypedIsCompletedOrRefused"),
		mistake("typed-to-a-later-stage", "migrations/repeatable/23_typed_changes.sql",
			`goes_to IS NULL OR goes_to > come_to`, `goes_to IS NULL`,
			"./registry", "TestChangesByHand|TestRefusalsAdviseWhatWorks"),
		mistake("typed-leaves-the-attempt", "migrations/repeatable/23_typed_changes.sql",
			`	IF OLD.status = 'Started' THEN
		m.ended`, `	IF false THEN
		m.ended`,
			"./claim", "TestRequeuesDuringARunTakeEffectOnce"),
		mistake("typed-without-audit", "migrations/repeatable/23_typed_changes.sql",
			`	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (OLD.id, to_jsonb(OLD), to_jsonb(NEW));
`, ``,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused"),
		mistake("requeued-without-message", "migrations/repeatable/23_typed_changes.sql",
			`	m.topic := topic_of(w.action, w.stage);
`, ``,
			"./claim", "TestRequeuesDuringARunTakeEffectOnce"),
		mistake("requeued-without-notify", "migrations/repeatable/23_typed_changes.sql",
			`PERFORM record_moves(ARRAY[m], false, true);`, `PERFORM record_moves(ARRAY[m], false, false);`,
			"./registry", "TestRequeuedAndNewItemsNotifyWorkers"),
		mistake("unbounded-by-hand", "migrations/repeatable/23_typed_changes.sql",
			`IF items > most THEN`, `IF items > most * 1000 THEN`,
			"./registry", "TestUpdateOfVeryManyIsRefused"),
		mistake("live-items-before-objects", "migrations/repeatable/25_item_functions.sql",
			`WHERE id = ANY (ids) AND NOT retry ORDER BY id FOR UPDATE;`, `WHERE id = ANY (ids) ORDER BY id FOR UPDATE;`,
			"./registry", "TestPlanAndBucketReaderDoNotCross"),
	}
}

// ofTyping are the mistakes in what is refused and recorded of changes by hand.
func ofTyping() []mutant {
	return []mutant{
		mistake("paused-for-good", "migrations/repeatable/10_stages.sql",
			`	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n' || NEW.stage);`, ``,
			"./pipeline", "TestPausedQueueKeepsAcceptingAndGoesOnAtOnce"),
		mistake("overtaking-moves-start-times", "migrations/repeatable/24_refused_changes.sql",
			`IF 'priority' = ANY (typed) THEN -- items`, `IF false THEN -- items`,
			"./claim", "TestOvertakingMovesNoStartTimes"),
		mistake("column-of-the-queue-typed", "migrations/repeatable/24_refused_changes.sql",
			`IF queues IS NOT NULL THEN`, `IF queues IS NULL AND false THEN`,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused"),
		mistake("queue-emptied-by-a-word", "migrations/repeatable/24_refused_changes.sql",
			`OR EXISTS (SELECT FROM work_items) THEN`, `THEN`,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused"),
		mistake("autoscaler-stops-the-busy", "migrations/repeatable/30_queue_views.sql",
			`count(*) FILTER (WHERE q.run_at <= now() OR q.run_at IS NULL)`, `count(*) FILTER (WHERE q.run_at <= now())`,
			"./pipeline", "TestPausedQueueKeepsAcceptingAndGoesOnAtOnce"),
		mistake("failed-but-tried-again", "migrations/repeatable/30_queue_views.sql",
			`) t
WHERE w.status IN ('Failed', 'Suspended');`, `) t
WHERE w.status IN ('Failed', 'Suspended') OR t.last_outcome = 'transient';`,
			"./registry", "TestFailedIsExact"),
	}
}

// ofPlans are the mistakes in changes of many items.
func ofPlans() []mutant {
	return []mutant{
		mistake("condition-that-writes", "migrations/repeatable/26_plans.sql",
			`		SET LOCAL transaction_read_only = on;
`, ``,
			"./registry", "TestFilterIsACondition"),
		mistake("condition-that-is-more", "migrations/repeatable/26_plans.sql",
			`	alone   text := condition_alone(condition);`, `	alone   text := condition;`,
			"./registry", "TestFilterIsACondition"),
		mistake("dry-run-by-chance", "migrations/repeatable/28_requeue_where.sql",
			`IF dry_run IS FALSE AND f.ids`, `IF dry_run IS NOT TRUE AND f.ids`,
			"./registry", "TestRequeueWhereTellsFirst"),
		mistake("many-over-a-change", "migrations/repeatable/26_plans.sql",
			`ELSIF (w.claim_token, w.stage, w.status, w.priority) IS DISTINCT FROM (i.claim_token, i.stage, i.status, i.priority) THEN`, `ELSIF false THEN`,
			"./registry", "TestRequeueWherePassesOverWhatHasChanged"),
		mistake("plan-of-what-moved", "migrations/repeatable/26_plans.sql",
			`AND w.claim_token = found.token`, ``,
			"./registry", "TestItemThatMovesInBetweenIsNotInThePlan"),
	}
}
