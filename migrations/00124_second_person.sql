-- The second person is another person, not the first one under another name: an e-mail
-- changes, and a command names a person otherwise than a server does. Rows from before have
-- names alone.

-- +goose Up
ALTER TABLE plans ADD created_by_user bigint REFERENCES users, ADD approved_by_user bigint REFERENCES users,
	ADD CONSTRAINT plans_two_users CHECK (approved_by_user <> created_by_user);
ALTER TABLE retrievals ADD requested_by bigint REFERENCES users;
