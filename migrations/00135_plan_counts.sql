-- A list of plans shows how far each is without counting its items.

-- +goose Up
ALTER TABLE plans ADD counts jsonb NOT NULL DEFAULT '{}', ADD in_work bigint NOT NULL DEFAULT 0;

UPDATE plans p SET
	counts = (SELECT coalesce(jsonb_object_agg(c.state, c.n), '{}') FROM (
		SELECT i.state, count(*) AS n FROM plan_items i WHERE i.plan_id = p.id GROUP BY i.state
	) c),
	in_work = (SELECT count(*) FROM plan_items i WHERE i.plan_id = p.id AND i.status = 'Started' AND i.state <> 'refused');
