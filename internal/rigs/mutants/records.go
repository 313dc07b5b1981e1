package main

import (
	"slices"
)

// ofRecords are the mistakes in what goes on record of copies, uploads and deletions.
func ofRecords() []mutant { return slices.Concat(ofHealing(), ofUploads(), ofTelling()) }

// ofHealing are those by which good bytes would be lost.
func ofHealing() []mutant {
	const heals = "TestDepositHealsBadCopies"
	return []mutant{
		mistake("bad-file-is-unchanged", "pipeline/ingest/reingest.go",
			`one.Unchanged && (k.Bad || !hasAll(k.Targets, p.StorageOption))`, `one.Unchanged && !hasAll(k.Targets, p.StorageOption)`,
			"./pipeline/steps", heals),
		mistake("copies-not-looked-at", "pipeline/ingest/reingest.go",
			`bad, err := s.anyBad(groupCtx, f)`, `bad, err := false, error(nil); _ = f`,
			"./pipeline/steps", heals),
		mistake("needed-tar-deleted", "pipeline/ingest/cleanup.go",
			`if err != nil || again == "" {`, `if err != nil || again != "" {`,
			"./pipeline/steps", "TestCleanupKeepsATarThatIsNeeded"),
		mistake("healed-and-still-bad", "registry/record.sql",
			`	WHERE b.storage_record_id = s.id AND b.state = 'open'
	  AND NOT EXISTS`, `	WHERE false AND b.storage_record_id = s.id
	  AND NOT EXISTS`,
			"./pipeline/steps", heals),
		mistake("lost-copies-passed-over", "pipeline/remove/delete.go",
			`if err != nil || all == 0 {`, `if true {`,
			"./pipeline/remove", "TestDeletionTellsOfMissingCopies"),
		mistake("receipt-for-what-was-lost", "registry/requests/receipts.go",
			`r.key = $4 AND r.removed_at IS NULL AND NOT r.found_missing`, `r.key = $4 AND r.removed_at IS NULL`,
			"./pipeline/remove", "TestDeletionTellsOfMissingCopies"),
		mistake("cancelled-deletion-keeps-its-mark", "migrations/repeatable/42_deletions.sql",
			`	UPDATE generic_files SET deleted_by_item = NULL, updated_at = now() WHERE id = ANY (back);`, ``,
			"./pipeline/remove", "TestCancelledDeletionGivesBack"),
		mistake("removed-copy-taken-for-kept", "migrations/repeatable/42_deletions.sql",
			`	PERFORM removed_copies_are_missing(w.id, back);`, ``,
			"./pipeline/remove", "TestCancelledDeletionGivesBack"),
		mistake("missing-copy-unproven", "pipeline/remove/delete.go",
			`_, err = s.Targets.Prove(ctx, s.Registry, r.StoredCopy, sums[r.FileID], storage.ErrNotFound)`, `_ = r`,
			"./pipeline/remove", "TestDeletionTellsOfMissingCopies"),
	}
}

// ofUploads are those by which uploads would be taken for what they are not.
func ofUploads() []mutant {
	return []mutant{
		mistake("earlier-version-ignored", "registry/items.go",
			`ended IS NULL OR u.modified > ended.bag_date OR`, `ended IS NULL OR`,
			"./registry", "TestUploadSeenAgain"),
		mistake("repetition-of-a-bad-copy", "registry/receiving.go",
			`OR EXISTS (SELECT FROM storage_records s JOIN fixity_failures b ON b.storage_record_id = s.id AND b.state = 'open' WHERE s.generic_file_id = f.id)`, ``,
			"./pipeline/steps", "TestRepeatedUploadIsAnswered"),
		mistake("repetition-of-what-was-deleted", "registry/receiving.go",
			`(f.state = 'D' OR f.deleted_by_item IS NOT NULL
		OR NOT EXISTS (SELECT FROM storage_records s WHERE s.generic_file_id = f.id)`, `(false`,
			"./pipeline/steps", "TestRepeatedUploadIsAnswered"),
		mistake("one-upload-stops-all", "pipeline/upkeep/buckets.go",
			`case errors.Is(err, registry.ErrRefused) && len(uploads) == 1:`, `case errors.Is(err, registry.ErrRefused):`,
			"./pipeline/steps", "TestUploadsThatNobodyTakes"),
		mistake("upload-without-etag", "pipeline/ingest/source.go",
			`IfMatch: s.Item.ETag, Version: string(version)`, `Version: string(version)`,
			"./pipeline/ingest", "TestUploadThatIsReplacedUnderAStage"),
		mistake("version-not-pinned", "pipeline/ingest/source.go",
			`IfMatch: s.Item.ETag, Version: string(version)`, `IfMatch: s.Item.ETag`,
			"./pipeline/ingest", "TestUploadThatIsReplacedUnderAStage"),
		mistake("read-bytes-believed", "pipeline/ingest/source.go",
			`if sha256.Sum256(content) == f.SHA256 {`, `if sum := sha256.Sum256(content); sum == f.SHA256 || len(content) > 0 {`,
			"./pipeline/ingest", "TestTarThatReadsDifferentlyIsReadAgain"),
		mistake("inventory-believed", "pipeline/ingest/source.go",
			`if err != nil || sum == f.SHA256 {`, `if err != nil || sum != [32]byte{} {`,
			"./pipeline/ingest", "TestTarThatReadsDifferentlyIsReadAgain"),
		mistake("any-name-is-taken", "pipeline/ingest/receive.go",
			`if f, ok := bag.JudgeName(key); !ok {`, `if f, ok := bag.JudgeName(key); !ok && key == "" {`,
			"./pipeline/upkeep", "TestBagOfAnIllegalNameFails"),
	}
}

// ofTelling are those by which a sentence on record would not be true.
func ofTelling() []mutant {
	const day = "TestADayEndsTruthfully"
	return []mutant{
		mistake("bad-copy-leaves-no-trace", "pipeline/restore/reading.go",
			`if failed := prove(ctx); failed != nil {`, `if failed := ctx.Err(); failed != nil {`,
			"./pipeline/steps", "TestRestorationTellsOfBadCopies"),
		mistake("unread-copy-is-checked", "registry/record.sql",
			`CASE c.verified_by WHEN 'read' THEN c.verified_at END
	FROM recording r
	CROSS JOIN LATERAL unnest(r.urls, r.targets, r.buckets, r.keys, r.etags, r.stored_at, r.verified_at, r.verified_by)
		AS c (url, target, bucket, key, etag, stored_at, verified_at, verified_by)
	WHERE r.is_new`, `c.verified_at
	FROM recording r
	CROSS JOIN LATERAL unnest(r.urls, r.targets, r.buckets, r.keys, r.etags, r.stored_at, r.verified_at, r.verified_by)
		AS c (url, target, bucket, key, etag, stored_at, verified_at, verified_by)
	WHERE r.is_new`,
			"./pipeline/steps", day),
		mistake("replaced-copy-without-event", "registry/upkeep/retired.go",
			`FROM gone g JOIN generic_files f ON f.id = g.generic_file_id`, `FROM gone g JOIN generic_files f ON f.id = g.generic_file_id AND false`,
			"./pipeline/steps", day),
		mistake("new-address-without-event", "registry/record.sql",
			`ELSE k.texts[2:] END`, `ELSE k.texts[3:] END`,
			"./pipeline/steps", day),
		mistake("outcome-of-before", "migrations/repeatable/21_transition.sql",
			`RETURN action || CASE status WHEN 'Cancelled'`, `RETURN NULL || CASE status WHEN 'Cancelled'`,
			"./pipeline/steps", day),
		mistake("pause-lifted-by-nsq", "migrations/repeatable/11_pauses.sql",
			`p.paused_by = acting_user() AND NOT only_nsq)`, `p.paused_by = acting_user())`,
			"./nsqcompat", "TestUnpauseInNSQEndsNoPauseOfFarol"),
		mistake("fixity-goes-on-while-paused", "registry/fixity/claim.sql",
			`p.paused_until <= now() AND NOT (SELECT paused FROM fixity_feed)`, `p.paused_until <= now()`,
			"./registry", "TestPausedFixityChecksAreNotClaimed"),
	}
}
