-- +goose Up
-- A lease that lapsed since the worker could not reach the database, or since the
-- answer to its claim never reached it, says nothing of the item: it spends no
-- attempt, as one that a clock ended.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION failed_attempts(item bigint, entered bigint, before bigint, ways text[] DEFAULT '{transient,panic,lease expired,killed,oom}')
RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT count(*) FROM work_item_attempts a
	WHERE a.work_item_id = item AND a.claim_token > entered AND a.claim_token < before
	  AND a.claim_token >= coalesce((SELECT max(f.claim_token) FROM attempts_forgiven f WHERE f.work_item_id = item), 0)
	  AND a.outcome = ANY (ways) AND a.error_code NOT IN ('clock-set', 'unreachable', 'claim-lost'));
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION failed_attempts(item bigint, entered bigint, before bigint, ways text[] DEFAULT '{transient,panic,lease expired,killed,oom}')
RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT count(*) FROM work_item_attempts a
	WHERE a.work_item_id = item AND a.claim_token > entered AND a.claim_token < before
	  AND a.claim_token >= coalesce((SELECT max(f.claim_token) FROM attempts_forgiven f WHERE f.work_item_id = item), 0)
	  AND a.outcome = ANY (ways) AND a.error_code <> 'clock-set');
-- +goose StatementEnd
