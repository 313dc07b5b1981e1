package main

// mutants are the mistakes, in the order of docs/testing.md, which says what each
// would have cost.
func mutants() []mutant {
	return []mutant{
		{
			"claim-not-due", "claim/postgres.go",
			`AND w.run_at <= now() AND w.action = $7 AND w.size >= $8`, `AND w.action = $7 AND w.size >= $8`,
			"./claim", "TestClaimTakesOnlyWhatItMay|TestBackoffGrowsToItsBound|TestOutcomes",
		},
		{
			"claim-not-rechecked", "claim/postgres.go",
			`ctid = found.place AND w.status = 'Pending' AND w.retry`, `id IN (SELECT id FROM work_items x WHERE x.ctid = found.place)`,
			"./claim", "TestEachItemIsClaimedOnce|TestManyClaimersShareManyItems",
		},
		{
			"claim-of-paused-stage", "claim/postgres.go",
			`AND s.stage = c.stage AND NOT s.paused`, `AND s.stage = c.stage`,
			"./claim", "TestPausedStageIsNotClaimed",
		},
		{
			"cap-without-turns", "claim/postgres.go",
			`SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`, `SELECT $1::text`,
			"./claim", "TestStageCapHoldsAcrossProcesses",
		},
		{
			"settle-without-token", "claim/moves.go",
			`WHERE w.id = m.id AND w.claim_token = m.token`, `WHERE w.id = m.id`,
			"./claim", "TestStaleClaimChangesNothing|TestThousandZombiesChangeNothing",
		},
		{
			"settle-keeps-token", "claim/moves.go",
			`		claim_token            = w.claim_token + 1,
`, ``,
			"./claim", "TestOutcomes|TestStaleClaimChangesNothing",
		},
		{
			"heartbeat-without-token", "claim/upkeep.go",
			`WHERE w.id = held.id AND w.claim_token = held.token
	RETURNING`, `WHERE w.id = held.id
	RETURNING`,
			"./claim", "TestLateWorkerDoesNotRenewAnothersLease|TestLostItemStopsItsWork",
		},
		{
			"late-heartbeat-shortens", "claim/upkeep.go",
			`greatest(w.lease_expires_at, now() + held.lease)`, `now() + held.lease`,
			"./claim", "TestLateHeartbeatShortensNoLease",
		},
		{
			"crash-does-not-count", "claim/reap.go",
			`w.attempt >= coalesce(`, `w.attempt > 1000 + coalesce(`,
			"./claim", "TestCrashesCount|TestItemThatKillsItsWorkersIsParked",
		},
		{
			"reap-of-the-living", "claim/reap.go",
			`w.lease_expires_at >= now() - $2::interval AND w.lease_expires_at < now()`, `w.lease_expires_at >= now() - $2::interval`,
			"./claim", "TestHeartbeatKeepsTheLease|TestCrashesCount|TestReaperComesToAll",
		},
		{
			"deaf-for-too-long", "claim/hold.go",
			`h.deaf.Reset(d*2/3 - time.Since(asked))`, `h.deaf.Reset(d*3/2 - time.Since(asked))`,
			"./claim", "TestWorkEndsBeforeItsLease|TestWorkerSideKeepsItsPromises",
		},
		{
			"hint-never-swept", "claim/hints.go",
			`sweepEvery  = time.Second`, `sweepEvery  = 1000 * time.Hour`,
			"./claim", "TestEachCellIsSweptEverySecond",
		},
		{
			"put-behind-the-hint", "claim/hints.go",
			`	if p.before(t.from) {
		t.from = p
	}`, ``,
			"./claim", "TestNextClaimSeesWhatWasPutBeforeItsHint",
		},
		{
			"waiters-not-freed", "migrations/00003_work_item_rules.sql",
			`	WHERE waits_for = OLD.id;`, `	WHERE waits_for = -OLD.id;`,
			"./registry", "TestVersionsOfABagDoNotMeet|TestWaitingItemThatIsReplacedPassesItsPlaceOn",
		},
		{
			"turns-not-taken", "claim/claimer.go",
			`e.turns[band] = max(e.turns[band], at.turn)`, `e.turns[band] = at.turn - at.turn`,
			"./claim", "TestInstitutionsTakeTurnsByBytes|TestWaitIsBoundedWhateverArrives",
		},
	}
}
