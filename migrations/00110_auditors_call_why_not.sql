-- What why_not() reads: an auditor may call it, and was refused for an item that waits.

-- +goose Up

INSERT INTO auditor_rights (on_table) VALUES ('services'), ('workers'), ('worker_processes');
