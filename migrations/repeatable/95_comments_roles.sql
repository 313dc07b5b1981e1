-- What the tables and columns of roles hold; docs/schema.md is generated from it.

COMMENT ON TABLE administration_rights IS 'What farol_admin may do with tables and views.';
COMMENT ON COLUMN administration_rights.privilege IS 'Privileges, as GRANT takes them.';
COMMENT ON COLUMN administration_rights.on_table IS 'Table or view.';

COMMENT ON TABLE auditor_rights IS 'What farol_auditor may read.';
COMMENT ON COLUMN auditor_rights.on_table IS 'Table or view.';
COMMENT ON COLUMN auditor_rights.columns IS 'Columns that it may read; empty: all.';
