-- A person whose e-mail address is changed gets a mail to the old one. Who has changed it
-- reads all mail for the account from then on.

-- +goose Up
ALTER TABLE mail_outbox DROP CONSTRAINT mail_outbox_kind_check,
	ADD CONSTRAINT mail_outbox_kind_check CHECK (kind IN ('alert', 'daily', 'digest', 'invite', 'reset', 'moved'));
