-- What the tables and columns of administration hold; docs/schema.md is generated from it.

COMMENT ON TABLE work_item_audit IS 'Changes that people made to items, from the console, the command line or psql.';
COMMENT ON COLUMN work_item_audit.id IS 'Number of the row.';
COMMENT ON COLUMN work_item_audit.work_item_id IS 'Work item that was changed.';
COMMENT ON COLUMN work_item_audit.at IS 'When it was changed.';
COMMENT ON COLUMN work_item_audit.session_user_is IS 'Database role that logged in.';
COMMENT ON COLUMN work_item_audit.application_name IS 'Program that made the change.';
COMMENT ON COLUMN work_item_audit.before IS 'Row before the change.';
COMMENT ON COLUMN work_item_audit.after IS 'Row after the change.';
COMMENT ON COLUMN work_item_audit.refused IS 'Why a request from a topic changed nothing; NULL where something was changed.';
COMMENT ON COLUMN work_item_audit.person IS 'Person whom the program names.';

COMMENT ON TABLE stage_settings_audit IS 'Changes to stage_settings, and to the pause of fixity checks: who, when, before and after.';
COMMENT ON COLUMN stage_settings_audit.id IS 'Number of the row.';
COMMENT ON COLUMN stage_settings_audit.action IS 'Action of the stage.';
COMMENT ON COLUMN stage_settings_audit.stage IS 'Stage that was changed.';
COMMENT ON COLUMN stage_settings_audit.at IS 'When it was changed.';
COMMENT ON COLUMN stage_settings_audit.session_user_is IS 'Database role that logged in.';
COMMENT ON COLUMN stage_settings_audit.application_name IS 'Program that made the change.';
COMMENT ON COLUMN stage_settings_audit.before IS 'Row before the change; null: the stage was added.';
COMMENT ON COLUMN stage_settings_audit.after IS 'Row after the change; null: the stage was removed.';
COMMENT ON COLUMN stage_settings_audit.person IS 'Person whom the program names.';

COMMENT ON TABLE plans IS 'Bulk changes: what is done to which items, and how far it is applied or undone.';
COMMENT ON COLUMN plans.id IS 'Number of the row.';
COMMENT ON COLUMN plans.action IS 'What is done to the items.';
COMMENT ON COLUMN plans.to_stage IS 'Stage to requeue to; NULL: the stage that each item is at.';
COMMENT ON COLUMN plans.priority IS 'Priority to set.';
COMMENT ON COLUMN plans.reason IS 'Note of cancelled items; NULL: who cancelled them.';
COMMENT ON COLUMN plans.condition IS 'Condition as it was typed; it is evaluated once.';
COMMENT ON COLUMN plans.items IS 'Items that met the condition.';
COMMENT ON COLUMN plans.refused IS 'Of these, items that were known to be refused when the plan was made.';
COMMENT ON COLUMN plans.bytes IS 'Size of the other items.';
COMMENT ON COLUMN plans.set_hash IS 'plan_hash() of the items when the plan was made.';
COMMENT ON COLUMN plans.state IS 'State of the plan.';
COMMENT ON COLUMN plans.upto IS 'Last item that was applied or undone, in the order of their IDs.';
COMMENT ON COLUMN plans.tolerance IS 'Percentage of the items that may have changed since the plan was made.';
COMMENT ON COLUMN plans.created_at IS 'When the row was written.';
COMMENT ON COLUMN plans.created_by IS 'Who made the plan.';
COMMENT ON COLUMN plans.begun_at IS 'When it was first applied.';
COMMENT ON COLUMN plans.begun_by IS 'Who applied it last.';
COMMENT ON COLUMN plans.applied_at IS 'When it was applied to all items.';
COMMENT ON COLUMN plans.undone_at IS 'When it was undone for all items.';
COMMENT ON COLUMN plans.undone_by IS 'Who undid it last.';

COMMENT ON TABLE plan_items IS 'Items of plans: how each stood when the plan was made, and what became of it.';
COMMENT ON COLUMN plan_items.plan_id IS 'Plan.';
COMMENT ON COLUMN plan_items.work_item_id IS 'Work item.';
COMMENT ON COLUMN plan_items.claim_token IS 'claim_token when the plan was made.';
COMMENT ON COLUMN plan_items.stage IS 'Stage when the plan was made.';
COMMENT ON COLUMN plan_items.status IS 'Status when the plan was made.';
COMMENT ON COLUMN plan_items.priority IS 'Priority when the plan was made.';
COMMENT ON COLUMN plan_items.size IS 'Size when the plan was made.';
COMMENT ON COLUMN plan_items.state IS 'What became of the item.';
COMMENT ON COLUMN plan_items.detail IS 'Why, unless it is as planned.';
COMMENT ON COLUMN plan_items.before IS 'Columns that an undo restores, as they were when the plan was applied.';
COMMENT ON COLUMN plan_items.token_after IS 'claim_token after the plan was applied.';
