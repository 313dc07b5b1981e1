COMMENT ON COLUMN storage_options.per_gib_month IS 'US dollars for a GiB and a month; NULL: reports show no price.';
COMMENT ON COLUMN storage_options.included_tib IS 'TiB of each institution that cost nothing; NULL: none.';

COMMENT ON TABLE object_holdings IS 'What each object has: triggers count its files as they are recorded and deleted. An object without a row has nothing.';
COMMENT ON COLUMN object_holdings.intellectual_object_id IS 'Object.';
COMMENT ON COLUMN object_holdings.files IS 'Active files.';
COMMENT ON COLUMN object_holdings.bytes IS 'Size of its active files, each counted once.';
COMMENT ON COLUMN object_holdings.payload_files IS 'Active files in the folder data of the bag.';
COMMENT ON COLUMN object_holdings.payload_bytes IS 'Size of these.';

COMMENT ON TABLE holdings_daily IS 'What each institution had in storage on each day.';
COMMENT ON COLUMN holdings_daily.day IS 'Day in UTC. Until it ends, the row has the latest count.';
COMMENT ON COLUMN holdings_daily.institution_id IS 'Institution.';
COMMENT ON COLUMN holdings_daily.storage_option IS 'Storage option of the objects.';
COMMENT ON COLUMN holdings_daily.objects IS 'Active objects.';
COMMENT ON COLUMN holdings_daily.files IS 'Active files.';
COMMENT ON COLUMN holdings_daily.bytes IS 'Size of the active files, each counted once, however many copies it has.';

COMMENT ON TABLE daily_outcomes IS 'Work items that ended on each day. An item counts once, as it ended last.';
COMMENT ON COLUMN daily_outcomes.day IS 'Day in UTC.';
COMMENT ON COLUMN daily_outcomes.institution_id IS 'Institution.';
COMMENT ON COLUMN daily_outcomes.action IS 'Action of the items.';
COMMENT ON COLUMN daily_outcomes.result IS 'Status with which the items ended.';
COMMENT ON COLUMN daily_outcomes.items IS 'Number of items.';
COMMENT ON COLUMN daily_outcomes.bytes IS 'Size of the items.';

COMMENT ON TABLE exports IS 'Exports of records that people and programs asked the REST API for.';
COMMENT ON COLUMN exports.id IS 'Number of the row.';
COMMENT ON COLUMN exports.kind IS 'What it has: inventory, manifest, events, premis, or evidence.';
COMMENT ON COLUMN exports.institution_id IS 'Institution whose records it has.';
COMMENT ON COLUMN exports.intellectual_object_id IS 'Object whose records it has; NULL: those of the whole institution.';
COMMENT ON COLUMN exports.requested_by IS 'Who asked for it, as in actions.';
COMMENT ON COLUMN exports.created_at IS 'When it was asked for.';
COMMENT ON COLUMN exports.work_item_id IS 'Work item that writes it into the restoration bucket; NULL: it is written while it is downloaded.';
COMMENT ON COLUMN exports.key IS 'Key in the restoration bucket of the institution; NULL: none.';
COMMENT ON COLUMN exports.records IS 'Records in it: rows, lines or entities. NULL, like the next columns, until it was written to its end.';
COMMENT ON COLUMN exports.bytes IS 'Size of the content that was written last.';
COMMENT ON COLUMN exports.sha256 IS 'SHA-256 of that content.';
COMMENT ON COLUMN exports.taken_at IS 'The moment whose records that content has. Of one that a work item wrote, when it began.';
COMMENT ON COLUMN exports.completed_at IS 'When that content was written.';
