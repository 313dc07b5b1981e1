COMMENT ON COLUMN alerts.user_id IS 'The only person who sees it; NULL: all whom it concerns.';
COMMENT ON COLUMN alerts.count IS 'How many of a kind it stands for.';
COMMENT ON COLUMN alerts.stage IS 'Stage, or other part of Farol, by which alerts of a kind are grouped.';
COMMENT ON COLUMN alerts.error_code IS 'Error code, or other name, by which alerts of a kind are grouped.';
COMMENT ON COLUMN alerts.last_at IS 'When the last of a kind was added.';

COMMENT ON TABLE alert_repeats IS 'What is to be added to the count of an alert that is open.';
COMMENT ON COLUMN alert_repeats.id IS 'Number of the row.';
COMMENT ON COLUMN alert_repeats.type IS 'Kind of alert.';
COMMENT ON COLUMN alert_repeats.institution_id IS 'Institution whose people see it; NULL: only the archive''s staff.';
COMMENT ON COLUMN alert_repeats.stage IS 'Stage by which it is grouped.';
COMMENT ON COLUMN alert_repeats.error_code IS 'Error code by which it is grouped.';
COMMENT ON COLUMN alert_repeats.subject IS 'Subject line, if there is no alert to add it to.';
COMMENT ON COLUMN alert_repeats.content IS 'Text, if there is no alert to add it to.';
COMMENT ON COLUMN alert_repeats.work_item_id IS 'Work item that it is about.';
COMMENT ON COLUMN alert_repeats.at IS 'When it happened.';

COMMENT ON TABLE mail_outbox IS 'Mail to send, and mail that was sent within 30 days.';
COMMENT ON COLUMN mail_outbox.id IS 'Number of the row.';
COMMENT ON COLUMN mail_outbox.message_id IS 'Makes the Message-ID: a mail that is sent twice has the same.';
COMMENT ON COLUMN mail_outbox.alert_id IS 'Alert that it reports.';
COMMENT ON COLUMN mail_outbox.user_id IS 'Person who gets it.';
COMMENT ON COLUMN mail_outbox.kind IS 'alert: the mail of one alert; daily: an alert that waits for a digest; digest: many alerts; invite, reset: a link to set a password; moved: to the address that the person had before.';
COMMENT ON COLUMN mail_outbox.args IS 'Of a digest the IDs of its alerts. Never a secret.';
COMMENT ON COLUMN mail_outbox.due_at IS 'When it is to be sent, or sent again. While it is being sent, when another process may try.';
COMMENT ON COLUMN mail_outbox.attempts IS 'Attempts to send it.';
COMMENT ON COLUMN mail_outbox.sent_at IS 'When the mail server accepted it.';
COMMENT ON COLUMN mail_outbox.gave_up_at IS 'When Farol gave up.';
COMMENT ON COLUMN mail_outbox.error IS 'Why the last attempt failed.';
COMMENT ON COLUMN mail_outbox.created_at IS 'When the row was written.';

COMMENT ON TABLE mail_settings IS 'Which alerts a person gets by mail: now, daily in a digest, or never. Without a row all are sent at once.';
COMMENT ON COLUMN mail_settings.user_id IS 'Person.';
COMMENT ON COLUMN mail_settings.deletions IS 'Alerts about deletions.';
COMMENT ON COLUMN mail_settings.restorations IS 'Alerts about restorations.';
COMMENT ON COLUMN mail_settings.fixity IS 'Alerts about fixity checks and repairs.';
COMMENT ON COLUMN mail_settings.problems IS 'All other alerts, but for those about the own account, which are always sent at once.';
