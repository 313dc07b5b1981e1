-- What the tables and columns of people hold; docs/schema.md is generated from it.

COMMENT ON COLUMN users.password_hash IS 'Argon2id hash of the password, as a PHC string, or a bcrypt hash that was imported, until the person signs in; NULL: none is set.';
COMMENT ON COLUMN users.password_set_at IS 'When the password was set.';
COMMENT ON COLUMN users.totp_sealed IS 'Secret of the second factor, sealed with FAROL_WEB_KEY; NULL: there is none.';
COMMENT ON COLUMN users.totp_last_step IS 'Last 30-second step whose code was used; it is not accepted again.';
COMMENT ON COLUMN users.second_factor_required IS 'Whether the person needs a second factor although role and institution do not ask for one.';
COMMENT ON COLUMN users.signed_in_at IS 'When the person signed in last.';
COMMENT ON COLUMN users.time_zone IS 'Time zone in which the person reads times and gets digests.';
COMMENT ON COLUMN users.color_scheme IS 'Whether the person wants light or dark pages; empty: as the system of the browser.';
COMMENT ON COLUMN users.oidc_issuer IS 'OpenID provider that knows the person; NULL: none.';
COMMENT ON COLUMN users.oidc_subject IS 'Who the person is at that provider.';
COMMENT ON COLUMN users.oidc_factor IS 'Whether that provider has asked the person for a second factor, and is trusted with that.';
COMMENT ON COLUMN users.version IS 'Grows with each change of what others see of the person.';
COMMENT ON COLUMN institutions.second_factor_required IS 'Whether all people of the institution need a second factor.';
COMMENT ON COLUMN institutions.version IS 'Grows with each change.';

COMMENT ON TABLE sign_in_failures IS 'Attempts to sign in that failed, since the last that succeeded.';
COMMENT ON COLUMN sign_in_failures.user_id IS 'Person whose e-mail was given.';
COMMENT ON COLUMN sign_in_failures.device IS 'Browser that has signed in the person before; empty: all others together.';
COMMENT ON COLUMN sign_in_failures.failures IS 'How many.';
COMMENT ON COLUMN sign_in_failures.failed_at IS 'When the last one was.';
COMMENT ON COLUMN sign_in_failures.locked_until IS 'Until when further attempts fail, whatever the password.';

COMMENT ON TABLE recovery_codes IS 'Codes that replace the second factor, each once.';
COMMENT ON COLUMN recovery_codes.user_id IS 'Person.';
COMMENT ON COLUMN recovery_codes.digest IS 'SHA-256 of the code.';
COMMENT ON COLUMN recovery_codes.used_at IS 'When it was used.';

COMMENT ON TABLE sessions IS 'People who have signed in with a browser.';
COMMENT ON COLUMN sessions.digest IS 'SHA-256 of the value of the cookie.';
COMMENT ON COLUMN sessions.id IS 'Number by which the person ends the session.';
COMMENT ON COLUMN sessions.user_id IS 'Person.';
COMMENT ON COLUMN sessions.level IS 'password: a second factor is still due, and nothing is allowed; full: everything that the role may.';
COMMENT ON COLUMN sessions.begun_at IS 'When it began.';
COMMENT ON COLUMN sessions.seen_at IS 'When it was last used, to the minute.';
COMMENT ON COLUMN sessions.ends_at IS 'When it ends at the latest.';
COMMENT ON COLUMN sessions.strong_at IS 'When the person last proved who they are.';
COMMENT ON COLUMN sessions.ip IS 'Address from which it began.';
COMMENT ON COLUMN sessions.agent IS 'Browser, as it names itself.';

COMMENT ON TABLE links IS 'Links that let a person in once: to set a first password, to set a new one, or to sign in on the machine itself.';
COMMENT ON COLUMN links.digest IS 'SHA-256 of the secret in the link.';
COMMENT ON COLUMN links.kind IS 'What it is for.';
COMMENT ON COLUMN links.user_id IS 'Person.';
COMMENT ON COLUMN links.created_at IS 'When the row was written.';
COMMENT ON COLUMN links.created_by IS 'Who made the link.';
COMMENT ON COLUMN links.ends_at IS 'When it expires.';
COMMENT ON COLUMN links.used_at IS 'When it was used, or made void.';

COMMENT ON COLUMN api_tokens.user_id IS 'Person whose token it is; NULL: a service.';
COMMENT ON COLUMN api_tokens.permissions IS 'What it may do with the REST API: a part of what the person may.';

COMMENT ON TABLE actions IS 'What people did, and what they were refused. Rows are never changed or deleted.';
COMMENT ON COLUMN actions.id IS 'Number of the row.';
COMMENT ON COLUMN actions.at IS 'When it was done.';
COMMENT ON COLUMN actions.actor IS 'acting_user(): who did it.';
COMMENT ON COLUMN actions.on_behalf_of IS 'Person for whom the actor acted on paper.';
COMMENT ON COLUMN actions.user_id IS 'Person who had signed in.';
COMMENT ON COLUMN actions.token_id IS 'Token that was used.';
COMMENT ON COLUMN actions.ip IS 'Address of the request.';
COMMENT ON COLUMN actions.operation IS 'What was done, such as deletions.approve.';
COMMENT ON COLUMN actions.subject_type IS 'Kind of the record that it was done to.';
COMMENT ON COLUMN actions.subject_id IS 'ID or name of that record.';
COMMENT ON COLUMN actions.institution_id IS 'Institution of that record.';
COMMENT ON COLUMN actions.actor_institution_id IS 'Institution of the person or token that acted, at that time.';
COMMENT ON COLUMN actions.outcome IS 'done or refused.';
COMMENT ON COLUMN actions.detail IS 'What else there is to know, such as the reason.';

COMMENT ON TABLE idempotency_keys IS 'Answers to requests with an Idempotency-Key, kept for a day.';
COMMENT ON COLUMN idempotency_keys.caller IS 'Who sent the request.';
COMMENT ON COLUMN idempotency_keys.key IS 'Key that the caller chose.';
COMMENT ON COLUMN idempotency_keys.operation IS 'Operation that was requested.';
COMMENT ON COLUMN idempotency_keys.request_sha256 IS 'SHA-256 of the request.';
COMMENT ON COLUMN idempotency_keys.status IS 'HTTP status of the answer; NULL: in progress.';
COMMENT ON COLUMN idempotency_keys.body IS 'Answer.';
COMMENT ON COLUMN idempotency_keys.etag IS 'ETag of the answer; NULL: it has none.';
COMMENT ON COLUMN idempotency_keys.done IS 'Whether the request was carried out, also if its answer was lost.';
COMMENT ON COLUMN idempotency_keys.at IS 'When the request came.';

COMMENT ON TABLE alert_reads IS 'Which alerts a person has read.';
COMMENT ON COLUMN alert_reads.user_id IS 'Person.';
COMMENT ON COLUMN alert_reads.alert_id IS 'Alert.';
COMMENT ON COLUMN alert_reads.read_at IS 'When.';

COMMENT ON COLUMN api_tokens.made_by IS 'Person who made the token, signed in; NULL: a command, or it is older than this column.';
COMMENT ON TABLE means_given IS 'Who gave whom the means to sign in or to act. For seven days the two count as one where two people decide: two_people().';
COMMENT ON COLUMN means_given.to_user IS 'Person who got them.';
COMMENT ON COLUMN means_given.by_user IS 'Person who gave them, signed in.';
COMMENT ON COLUMN means_given.what IS 'Table of the row that was written, or the columns of users that were changed, the last time.';
COMMENT ON COLUMN means_given.at IS 'When, the last time. Rows of eight days ago are deleted.';
COMMENT ON TABLE admins_left IS 'Institutional admins who were demoted, moved, deactivated or deleted. For seven days the archive''s staff do not take their place.';
COMMENT ON COLUMN admins_left.user_id IS 'Person.';
COMMENT ON COLUMN admins_left.institution_id IS 'Institution that has lost the admin.';
COMMENT ON COLUMN admins_left.left_at IS 'When. Rows of eight days ago are deleted.';
