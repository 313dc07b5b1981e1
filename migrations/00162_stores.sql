-- What is known of each S3 store: measured by trials, and corrected by what it answers. Each
-- process would find it out again otherwise, with a refused request for each thing.

-- +goose Up
CREATE TABLE stores (
	endpoint    text        PRIMARY KEY CHECK (length(endpoint) BETWEEN 1 AND 2000),
	server      text        NOT NULL DEFAULT '' CHECK (length(server) <= 200),
	measured_at timestamptz,
	seen_at     timestamptz NOT NULL DEFAULT now(),
	ways        jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(ways) = 'object'),
	buckets     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(buckets) = 'object')
);

INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'stores');
INSERT INTO auditor_rights (on_table) VALUES ('stores');
