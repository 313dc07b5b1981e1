-- Plans that people apply and undo over the REST API: a server carries them out, and if it
-- dies, another one goes on. A large plan is approved by a second person.

-- +goose Up
ALTER TABLE plans ADD carry text, ADD carry_for text,
	ADD CONSTRAINT plans_carry_known CHECK (carry IN ('apply', 'undo')),
	ADD CONSTRAINT plans_carried_for_someone CHECK ((carry IS NULL) = (carry_for IS NULL)),
	ADD CONSTRAINT plans_two_people CHECK (approved_by <> created_by);
CREATE INDEX plans_carried ON plans (id) WHERE carry IS NOT NULL;
