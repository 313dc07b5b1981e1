-- remote_leases: reads until when the leases of claimed items last.
-- Index: work_items_pkey
-- Parameters: $1, $2 items and tokens.
SELECT w.id, w.lease_expires_at
FROM unnest($1::bigint[], $2::bigint[]) AS c (id, token)
JOIN work_items w ON w.id = c.id AND w.claim_token = c.token
