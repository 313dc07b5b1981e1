package main

import "slices"

// mutants are all mistakes. docs/testing.md says what each would have cost.
func mutants() []mutant {
	return slices.Concat(ofClaims(), ofLeases(), ofRules(), ofTyping(), ofRecords())
}

// ofClaims are the mistakes in what a claim takes, and where it looks.
func ofClaims() []mutant {
	return []mutant{
		{
			"claim-not-due", "claim/sql/claim_ingest.sql",
			`AND w.run_at <= now() AND w.action = $7 AND w.size >= $8`, `AND w.action = $7 AND w.size >= $8`,
			"./claim", "TestClaimTakesOnlyWhatItMay|TestBackoffGrowsToItsBound|TestOutcomes",
		},
		{
			"claim-not-rechecked", "claim/sql/claim_ingest.sql",
			`ctid = found.place AND w.status = 'Pending' AND w.retry`, `id IN (SELECT id FROM work_items x WHERE x.ctid = found.place)`,
			"./claim", "TestEachItemIsClaimedOnce|TestManyClaimersShareManyItems",
		},
		{
			"claim-of-paused-stage", "claim/sql/claim_ingest.sql",
			`AND s.stage = c.stage AND NOT s.paused`, `AND s.stage = c.stage`,
			"./claim", "TestPausedStageIsNotClaimed",
		},
		{
			"cap-without-lock", "claim/scan.go",
			`SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`, `SELECT $1::text`,
			"./claim", "TestStageCapHoldsAcrossProcesses",
		},
		{
			"cursor-never-rescanned", "claim/cursor/cursor.go",
			`rescanEvery      = time.Second`, `rescanEvery      = 1000 * time.Hour`,
			"./claim/cursor", "TestEachPartitionIsRescannedEverySecond",
		},
		{
			"put-before-the-cursor", "claim/cursor/cursor.go",
			`		if p.Position.Before(t.from) {
			t.from = p.Position
		}`, ``,
			"./claim/cursor", "TestNextClaimSeesWhatWasMovedBeforeItsCursor",
		},
		{
			"virtual-start-not-recorded", "claim/fairness.go",
			`c.starts[band] = max(c.starts[band], start)`, `c.starts[band] = start - start`,
			"./claim", "TestInstitutionsTakeTurnsByBytes|TestWaitIsBoundedWhateverArrives",
		},
	}
}

// ofLeases are the mistakes in ends, heartbeats and reaping.
func ofLeases() []mutant {
	return []mutant{
		{
			"settle-without-token", "claim/sql/settle.sql",
			`WHERE w.id = m.id AND w.claim_token = m.token`, `WHERE w.id = m.id`,
			"./claim", "TestStaleClaimChangesNothing|TestThousandZombiesChangeNothing",
		},
		{
			"settle-keeps-token", "claim/sql/settle.sql",
			`		claim_token            = w.claim_token + 1,
`, ``,
			"./claim", "TestOutcomes|TestStaleClaimChangesNothing",
		},
		{
			"heartbeat-without-token", "claim/sql/renew.sql",
			`WHERE w.id = held.id AND w.claim_token = held.token
	RETURNING`, `WHERE w.id = held.id
	RETURNING`,
			"./claim", "TestLateWorkerDoesNotRenewAnothersLease|TestLostItemStopsItsWork",
		},
		{
			"late-heartbeat-shortens", "claim/sql/renew.sql",
			`greatest(w.lease_expires_at, now() + held.lease)`, `now() + held.lease`,
			"./claim", "TestLateHeartbeatShortensNoLease",
		},
		{
			"crash-does-not-count", "claim/sql/reap.sql",
			`n.attempt >= m.most AND NOT`, `n.attempt > 1000 + m.most AND NOT`,
			"./claim", "TestCrashesCount|TestItemThatKillsItsWorkersIsParked",
		},
		{
			"reap-of-the-living", "claim/sql/lapsed.sql",
			`w.lease_expires_at >= now() - $2::interval AND w.lease_expires_at < now()`, `w.lease_expires_at >= now() - $2::interval`,
			"./claim", "TestHeartbeatKeepsTheLease|TestCrashesCount|TestReaperComesToAll",
		},
		{
			"late-for-too-long", "claim/hold.go",
			`h.late.Reset(d*2/3 - time.Since(asked))`, `h.late.Reset(d*3/2 - time.Since(asked))`,
			"./claim", "TestWorkEndsBeforeItsLease|TestWorkerSideKeepsItsPromises",
		},
	}
}

// ofRules are the mistakes in what a typed change does to an item.
func ofRules() []mutant {
	return []mutant{
		{
			"waiters-not-freed", "migrations/00017_requests.sql",
			`	WHERE waits_for = OLD.id;`, `	WHERE waits_for = -OLD.id;`,
			"./registry", "TestVersionsOfABagDoNotMeet|TestWaitingItemThatIsReplacedPassesItsPlaceOn",
		},
		{
			"typed-keeps-token", "migrations/00004_administration.sql",
			`NEW.claim_token := OLD.claim_token + 1;`, ``,
			"./registry", "TestChangesByHand|TestWhateverIsTypedIsCompletedOrRefused",
		},
		{
			"typed-to-a-later-stage", "migrations/00038_advice_that_works.sql",
			`goes_to IS NULL OR goes_to > come_to`, `goes_to IS NULL`,
			"./registry", "TestChangesByHand|TestRefusalsAdviseWhatWorks",
		},
		{
			"typed-leaves-the-attempt", "migrations/00004_administration.sql",
			`	IF OLD.status = 'Started' THEN
		UPDATE work_item_attempts`, `	IF false THEN
		UPDATE work_item_attempts`,
			"./claim", "TestRequeuesDuringARunTakeEffectOnce",
		},
		{
			"typed-without-audit", "migrations/00004_administration.sql",
			`	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (OLD.id, to_jsonb(OLD), to_jsonb(NEW));
	IF NEW.status = 'Pending' THEN`, `	IF NEW.status = 'Pending' THEN`,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused",
		},
		{
			"requeued-and-not-told", "migrations/00004_administration.sql",
			`		PERFORM append_topic_message(NEW.action, NEW.stage, NEW.id);
`, ``,
			"./claim", "TestRequeuesDuringARunTakeEffectOnce",
		},
		{
			"requeued-and-not-heard", "migrations/00004_administration.sql",
			`		PERFORM pg_notify('farol_work', E'\n' || NEW.stage); -- equal`, `		-- equal`,
			"./registry", "TestRequeuedAndNewItemsAreHeardOf",
		},
		{
			"unbounded-by-hand", "migrations/00004_administration.sql",
			`IF items > most THEN`, `IF items > most * 1000 THEN`,
			"./registry", "TestUpdateOfVeryManyIsRefused",
		},
		{
			"live-items-before-objects", "migrations/00017_requests.sql",
			`WHERE id = ANY (ids) AND NOT retry ORDER BY id FOR UPDATE;`, `WHERE id = ANY (ids) ORDER BY id FOR UPDATE;`,
			"./registry", "TestPlanAndBucketReaderDoNotCross",
		},
	}
}

// ofTyping are the mistakes in what is refused and seen of typing, and in what changes many items.
func ofTyping() []mutant {
	return []mutant{
		{
			"paused-for-good", "migrations/00031_orders_from_nsq.sql",
			`	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n' || NEW.stage);`, ``,
			"./pipeline", "TestPausedQueueKeepsAcceptingAndGoesOnAtOnce",
		},
		{
			"overtaking-moves-turns", "migrations/00006_typed_by_hand.sql",
			`IF 'priority' = ANY (typed) THEN -- what`, `IF false THEN -- what`,
			"./claim", "TestOvertakingMovesNoTurns",
		},
		{
			"condition-that-writes", "migrations/00005_plans.sql",
			`		SET LOCAL transaction_read_only = on;
`, ``,
			"./registry", "TestFilterIsACondition",
		},
		{
			"condition-that-is-more", "migrations/00005_plans.sql",
			`	alone   text := condition_alone(condition);`, `	alone   text := condition;`,
			"./registry", "TestFilterIsACondition",
		},
		{
			"dry-run-by-chance", "migrations/00008_why_not_and_requeue_where.sql",
			`IF dry_run IS NOT FALSE THEN`, `IF dry_run THEN`,
			"./registry", "TestRequeueWhereTellsFirst",
		},
		{
			"many-over-a-change", "migrations/00008_why_not_and_requeue_where.sql",
			`IF w.claim_token <> tokens[n] THEN`, `IF false THEN`,
			"./registry", "TestRequeueWherePassesOverWhatHasChangedMeanwhile",
		},
		{
			"column-of-the-queue-typed", "migrations/00006_typed_by_hand.sql",
			`IF queues IS NOT NULL THEN`, `IF queues IS NULL AND false THEN`,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused",
		},
		{
			"queue-emptied-by-a-word", "migrations/00006_typed_by_hand.sql",
			`OR EXISTS (SELECT FROM work_items) THEN`, `THEN`,
			"./registry", "TestWhateverIsTypedIsCompletedOrRefused",
		},
		{
			"autoscaler-stops-the-busy", "migrations/00022_added_stages.sql",
			`count(*) FILTER (WHERE q.run_at <= now() OR q.run_at IS NULL)`, `count(*) FILTER (WHERE q.run_at <= now())`,
			"./pipeline", "TestPausedQueueKeepsAcceptingAndGoesOnAtOnce",
		},
		{
			"failed-but-tried-again", "migrations/00007_views.sql",
			`) t
WHERE w.status IN ('Failed', 'Suspended');`, `) t
WHERE w.status IN ('Failed', 'Suspended') OR t.last_outcome = 'transient';`,
			"./registry", "TestFailedIsExact",
		},
	}
}
