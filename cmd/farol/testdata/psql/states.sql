-- One item in each state, at Store: 1 Pending, 2 put off, 3 and 5 in the hands of a
-- worker, 4 waiting for 3, 6 Success, 7 Failed, 8 Suspended, 9 Cancelled.
INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'in', 'out');
INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
SELECT 1, 'Ingest', 'Receive', n, 'in', 'e', 2048, now()
FROM unnest(ARRAY['one.tar', 'two.tar', 'parts.b01.of02.tar', 'parts.b02.of02.tar', 'five.tar', 'six.tar', 'seven.tar', 'eight.tar',
	'nine.tar']) WITH ORDINALITY k (n, place)
ORDER BY place;

-- A worker has had each of them once, and some of them still.
UPDATE work_items SET claim_token = 2, entered_token = 1, stage = 'Store';
INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, current_file, ended_at, outcome, error, error_code)
SELECT id, 2, 'Store', 1, 'node-1', 42, 'node-1-4711', 'data/a.txt', now(), 'transient', 'Storage is slow.', 'timeout'
FROM work_items WHERE id NOT IN (3, 4, 5);
INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, current_file)
SELECT id, 3, 'Store', 1, 'node-1', 42, 'node-1-4711', 'data/a.txt' FROM work_items WHERE id IN (3, 5);
UPDATE work_items SET claim_token = 3, run_at = now() + interval '1 hour', attempt = 1, error_code = 'timeout', note = 'Storage is slow.' WHERE id = 2;
UPDATE work_items SET claim_token = 3, status = 'Started', attempt = 1, node = 'node-1', pid = 42, worker = 'node-1-4711',
	stage_started_at = now(), lease_expires_at = now() + interval '1 hour' WHERE id IN (3, 5);
UPDATE work_items SET claim_token = 3, status = 'Success', stage = 'Cleanup', retry = false WHERE id = 6;
UPDATE work_items SET claim_token = 3, status = 'Failed', retry = false, needs_admin_review = true, error_code = 'storage-denied',
	note = 'Storage denies access.' WHERE id = 7;
UPDATE work_items SET claim_token = 3, status = 'Suspended', retry = false, needs_admin_review = true, error_code = 'timeout',
	note = 'Storage is slow.' WHERE id = 8;
UPDATE work_items SET claim_token = 3, status = 'Cancelled', retry = false, note = 'No longer wanted.' WHERE id = 9;
INSERT INTO worker_processes (worker, node, pid, host, pid_started, heartbeat, pools) VALUES
	('node-1-4711', 'node-1', 42, 'h', 1, '1 hour', '[{"name":"all","stages":["Receive","Validate","Store"],"min_size":0,"max_size":0,"slots":8}]');
