-- Mail: alerts, what is to be sent of them, and what each person wants of it.

-- +goose Up

CREATE TABLE alerts (
	id                  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id      bigint      REFERENCES institutions,
	type                text        NOT NULL CHECK (type IN ('Deletion Cancelled', 'Deletion Completed', 'Deletion Confirmed', 'Deletion Requested',
		'Failed Fixity Check', 'Restoration Completed', 'Spot Restoration Completed', 'Spot Restoration Failed', 'Repair Stopped', 'Service Held',
		'Item Failed', 'Item Suspended', 'Restoration Ready Soon To Expire', 'Approval Waits', 'Fixity Promise Broken', 'Worker Lost', 'Queue Overdue',
		'Account Locked', 'New Sign-in', 'Password Changed', 'Token Made', 'Second Factor Changed', 'Mail Not Delivered')),
	subject             text        NOT NULL CHECK (subject <> ''),
	content             text        NOT NULL,
	deletion_request_id bigint      REFERENCES deletion_requests,
	work_item_id        bigint, -- no foreign key: the item may be archived
	generic_file_id     bigint      REFERENCES generic_files,
	created_at          timestamptz NOT NULL DEFAULT now(),
	user_id             bigint      REFERENCES users ON DELETE CASCADE,
	count               integer     NOT NULL DEFAULT 1 CHECK (count > 0),
	stage               text,
	error_code          text,
	last_at             timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX alerts_institution ON alerts (institution_id, id);
CREATE INDEX alerts_staff ON alerts (id) WHERE institution_id IS NULL;
CREATE INDEX alerts_user ON alerts (user_id, id) WHERE user_id IS NOT NULL;
-- What raise_alert() looks for.
CREATE INDEX alerts_grouped ON alerts (type, stage, error_code, created_at) WHERE stage IS NOT NULL;

CREATE TABLE alert_reads (
	user_id  bigint      NOT NULL REFERENCES users ON DELETE CASCADE,
	alert_id bigint      NOT NULL REFERENCES alerts ON DELETE CASCADE,
	read_at  timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (user_id, alert_id)
);

-- An alert that is open gets no row lock from the transactions that add to it, which have
-- locked items: each adds a row here, and a job counts them.
CREATE TABLE alert_repeats (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	type           text        NOT NULL,
	institution_id bigint      REFERENCES institutions,
	stage          text        NOT NULL,
	error_code     text        NOT NULL,
	subject        text        NOT NULL,
	content        text        NOT NULL,
	work_item_id   bigint, -- no foreign key: the item may be archived
	at             timestamptz NOT NULL DEFAULT now()
);

-- No row here has a secret: a link is made when its mail is sent, and not kept.
CREATE TABLE mail_outbox (
	id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	message_id uuid        NOT NULL DEFAULT gen_random_uuid() UNIQUE,
	alert_id   bigint      REFERENCES alerts ON DELETE CASCADE,
	user_id    bigint      NOT NULL REFERENCES users ON DELETE CASCADE,
	kind       text        NOT NULL CHECK (kind IN ('alert', 'daily', 'digest', 'invite', 'reset', 'moved')),
	args       jsonb       NOT NULL DEFAULT '{}',
	due_at     timestamptz NOT NULL DEFAULT now(),
	attempts   integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
	sent_at    timestamptz,
	gave_up_at timestamptz,
	error      text        NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT alerts_are_named CHECK ((kind IN ('alert', 'daily')) = (alert_id IS NOT NULL)),
	CONSTRAINT ends_once CHECK (sent_at IS NULL OR gave_up_at IS NULL)
);
CREATE INDEX mail_outbox_due ON mail_outbox (due_at) WHERE sent_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX mail_outbox_sent ON mail_outbox (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX mail_outbox_gave_up ON mail_outbox (gave_up_at) WHERE gave_up_at IS NOT NULL;
CREATE INDEX mail_outbox_alert ON mail_outbox (alert_id) WHERE alert_id IS NOT NULL;

-- A person without a row gets each mail at once.
CREATE TABLE mail_settings (
	user_id      bigint PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	deletions    text   NOT NULL DEFAULT 'now' CHECK (deletions IN ('now', 'daily', 'never')),
	restorations text   NOT NULL DEFAULT 'now' CHECK (restorations IN ('now', 'daily', 'never')),
	fixity       text   NOT NULL DEFAULT 'now' CHECK (fixity IN ('now', 'daily', 'never')),
	problems     text   NOT NULL DEFAULT 'now' CHECK (problems IN ('now', 'daily', 'never'))
);
