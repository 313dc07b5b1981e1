-- What the tables and columns of requests hold; docs/schema.md is generated from it.

COMMENT ON TABLE users IS 'People of the institutions, and of the archive itself.';
COMMENT ON COLUMN users.id IS 'Number of the row.';
COMMENT ON COLUMN users.email IS 'E-mail address; unique in any case.';
COMMENT ON COLUMN users.name IS 'Name of the person.';
COMMENT ON COLUMN users.institution_id IS 'Institution whose records the person sees; NULL for admins and operators, and for auditors of the whole archive.';
COMMENT ON COLUMN users.role IS 'What the person may do: docs/security.md.';
COMMENT ON COLUMN users.deactivated_at IS 'When the person lost access.';
COMMENT ON COLUMN users.created_at IS 'When the row was written.';
COMMENT ON COLUMN users.updated_at IS 'When the row was last changed.';

COMMENT ON TABLE storage_options IS 'How long files of each storage option must be kept; the provider bills for that time anyway.';
COMMENT ON COLUMN storage_options.name IS 'Name of the storage option.';
COMMENT ON COLUMN storage_options.retention_days IS 'Days before a file may be deleted, counted from when it was recorded or came back after a deletion.';

COMMENT ON TABLE retrieval_prices IS 'What it costs to make archived copies readable, by storage class and tier. Keep it up to date with the provider''s list.';
COMMENT ON COLUMN retrieval_prices.storage_class IS 'Storage class of the provider.';
COMMENT ON COLUMN retrieval_prices.tier IS 'Speed of the retrieval.';
COMMENT ON COLUMN retrieval_prices.per_gib IS 'US dollars for 2^30 bytes.';
COMMENT ON COLUMN retrieval_prices.per_1000_requests IS 'US dollars for 1000 objects.';
COMMENT ON COLUMN retrieval_prices.takes IS 'Longest time that the provider states.';
COMMENT ON COLUMN retrieval_prices.poll IS 'Time between two polls of the provider.';

COMMENT ON TABLE request_settings IS 'Settings of requests, in one row.';
COMMENT ON COLUMN request_settings.only_one IS 'Keeps the table at one row.';
COMMENT ON COLUMN request_settings.retrieval_cap IS 'US dollars above which an admin must approve a retrieval.';
COMMENT ON COLUMN request_settings.deletion_wait IS 'Time that an approved deletion waits before anything is removed, unless its institution has its own.';

COMMENT ON TABLE deletion_requests IS 'Requests to delete files and objects, which a second person must approve.';
COMMENT ON COLUMN deletion_requests.id IS 'Number of the row.';
COMMENT ON COLUMN deletion_requests.institution_id IS 'Institution whose files are to be deleted.';
COMMENT ON COLUMN deletion_requests.requested_by IS 'Person who requested it.';
COMMENT ON COLUMN deletion_requests.requested_at IS 'When it was requested.';
COMMENT ON COLUMN deletion_requests.requested_as IS 'acting_user() of the request; NULL: it is older than this column.';
COMMENT ON COLUMN deletion_requests.approved_by IS 'Second person, who approved it.';
COMMENT ON COLUMN deletion_requests.approved_at IS 'When it was approved.';
COMMENT ON COLUMN deletion_requests.approved_as IS 'acting_user() of the approval; NULL: there is none, or it is older than this column.';
COMMENT ON COLUMN deletion_requests.on_paper IS 'Why the approval was entered for the second person, who had not signed in; NULL: the person had.';
COMMENT ON COLUMN deletion_requests.begins_at IS 'Time before which nothing is removed, fixed at the approval; NULL: it is not approved.';
COMMENT ON COLUMN deletion_requests.cancelled_by IS 'Person who cancelled it.';
COMMENT ON COLUMN deletion_requests.cancelled_at IS 'When it was cancelled.';
COMMENT ON COLUMN deletion_requests.cancel_reason IS 'Why it was cancelled; NULL: that was not said.';

COMMENT ON TABLE deletion_requests_generic_files IS 'Files that a deletion request names.';
COMMENT ON COLUMN deletion_requests_generic_files.deletion_request_id IS 'Deletion request.';
COMMENT ON COLUMN deletion_requests_generic_files.generic_file_id IS 'File to delete.';

COMMENT ON TABLE deletion_requests_intellectual_objects IS 'Objects that a deletion request names.';
COMMENT ON COLUMN deletion_requests_intellectual_objects.deletion_request_id IS 'Deletion request.';
COMMENT ON COLUMN deletion_requests_intellectual_objects.intellectual_object_id IS 'Object to delete, with all its files.';

COMMENT ON TABLE deletion_receipts IS 'Each copy that a deletion removed, when, and when it was seen to be gone.';
COMMENT ON COLUMN deletion_receipts.work_item_id IS 'Work item of the deletion.';
COMMENT ON COLUMN deletion_receipts.generic_file_id IS 'File that the copy was of.';
COMMENT ON COLUMN deletion_receipts.target IS 'Storage target of the copy.';
COMMENT ON COLUMN deletion_receipts.bucket IS 'Bucket of the copy.';
COMMENT ON COLUMN deletion_receipts.key IS 'Key of the copy.';
COMMENT ON COLUMN deletion_receipts.url IS 'Address of the copy.';
COMMENT ON COLUMN deletion_receipts.begun_at IS 'When the removal of the copy began, before it was removed; NULL: the copy is untouched.';
COMMENT ON COLUMN deletion_receipts.removed_at IS 'When the copy was deleted; NULL: it is kept, was found missing, or is still to be deleted.';
COMMENT ON COLUMN deletion_receipts.kept IS 'Why the bytes are kept; empty: they are not.';
COMMENT ON COLUMN deletion_receipts.kept_by_store IS 'Until when the store of the copy kept it under Object Lock, as it said last; empty: it did not.';
COMMENT ON COLUMN deletion_receipts.absent_at IS 'When HEAD answered 404 and no version was left.';
COMMENT ON COLUMN deletion_receipts.seen_at IS 'When the deletion looked for the copy.';
COMMENT ON COLUMN deletion_receipts.found_missing IS 'The copy was missing before it was deleted.';
COMMENT ON COLUMN deletion_receipts.accepted_by IS 'Person who lets the deletion go on without the missing copy.';

COMMENT ON TABLE retrievals IS 'Restorations from an archive class: what each costs, and who approved it. No worker claims one above the cap before that.';
COMMENT ON COLUMN retrievals.work_item_id IS 'Work item of the retrieval.';
COMMENT ON COLUMN retrievals.storage_class IS 'Storage class that the copies are in.';
COMMENT ON COLUMN retrievals.tier IS 'Speed of the retrieval.';
COMMENT ON COLUMN retrievals.days IS 'Days for which the copies stay readable.';
COMMENT ON COLUMN retrievals.files IS 'Number of files.';
COMMENT ON COLUMN retrievals.bytes IS 'Size of the files.';
COMMENT ON COLUMN retrievals.price IS 'Price in US dollars.';
COMMENT ON COLUMN retrievals.cap IS 'Price above which an admin must approve.';
COMMENT ON COLUMN retrievals.requested_by IS 'User who requested it; NULL: the archive itself, or not recorded at the time.';
COMMENT ON COLUMN retrievals.approved_by IS 'Admin who approved the price.';
COMMENT ON COLUMN retrievals.approved_at IS 'When the price was approved.';
COMMENT ON COLUMN retrievals.woken_at IS 'When the item was last made due before its time.';
COMMENT ON COLUMN retrievals.readable_until IS 'When the first of the copies expires; set when all are readable.';
COMMENT ON COLUMN retrievals.next_item IS 'Work item that restores the copies.';

COMMENT ON TABLE spot_restores IS 'Objects that were drawn at random and restored to prove that they can be, and the results.';
COMMENT ON COLUMN spot_restores.institution_id IS 'Institution that the object belongs to.';
COMMENT ON COLUMN spot_restores.work_item_id IS 'Work item of the restoration.';
COMMENT ON COLUMN spot_restores.intellectual_object_id IS 'Object that was drawn.';
COMMENT ON COLUMN spot_restores.requested_at IS 'When it was drawn.';
COMMENT ON COLUMN spot_restores.ended_at IS 'When the item ended; NULL: it is in the queue.';
COMMENT ON COLUMN spot_restores.outcome IS 'Result; NULL: it is in the queue.';

COMMENT ON TABLE alerts IS 'Messages to people: deletions, restorations that are ready, copies that failed their fixity check, services that fail.';
COMMENT ON COLUMN alerts.id IS 'Number of the row.';
COMMENT ON COLUMN alerts.institution_id IS 'Institution whose people see it; NULL: only the archive''s staff.';
COMMENT ON COLUMN alerts.type IS 'Kind of alert.';
COMMENT ON COLUMN alerts.subject IS 'Subject line.';
COMMENT ON COLUMN alerts.content IS 'Text of the message.';
COMMENT ON COLUMN alerts.deletion_request_id IS 'Deletion request that it is about.';
COMMENT ON COLUMN alerts.work_item_id IS 'Work item that it is about.';
COMMENT ON COLUMN alerts.generic_file_id IS 'File that it is about.';
COMMENT ON COLUMN alerts.created_at IS 'When the row was written.';
