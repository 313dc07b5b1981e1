package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// repeatable is a file of functions, views, triggers or comments.
type repeatable struct {
	name, text, digest string
	appliedAt          time.Time // zero: the database has never had this content
	replaced           bool      // the database had it, and has got another since
}

// readRepeatables returns the files in their order, with what the database has of them.
func readRepeatables(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) ([]repeatable, error) {
	names, err := fs.Glob(files, "repeatable/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the repeatable files: %w", err)
	}
	var there bool
	if err := q.QueryRowContext(ctx, `SELECT to_regclass('schema_repeatables') IS NOT NULL`).Scan(&there); err != nil {
		return nil, fmt.Errorf("read the database's repeatable files: %w", err)
	}
	list := make([]repeatable, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read a repeatable file: %w", err)
		}
		digest := sha256.Sum256(text)
		f := repeatable{name: path.Base(name), text: string(text), digest: hex.EncodeToString(digest[:])}
		if there {
			err := q.QueryRowContext(ctx, `
				SELECT applied_at, applied_at < (SELECT max(applied_at) FROM schema_repeatables WHERE file = $1)
				FROM schema_repeatables WHERE file = $1 AND digest = $2`, f.name, f.digest).Scan(&f.appliedAt, &f.replaced)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, fmt.Errorf("read the database's repeatable files: %w", err)
			}
		}
		list[i] = f
	}
	return list, nil
}

// repeat applies the repeatable files that have changed, and gives the roles their
// rights, in one transaction. Processes that migrate wait for each other: they would
// write the same rows of the catalog. Content that was replaced since is applied with
// again only: where hosts are upgraded one by one, an older program would take the
// functions of the newer one away.
func repeat(ctx context.Context, p *goose.Provider, db *sql.DB, again bool) error {
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the database's migrations: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it was committed, or there is nothing to keep
	// Functions with their owner's rights look for names in this schema, and in pg_temp
	// only after it. Bodies may name what a later file creates.
	if err := execAll(ctx, tx, `SELECT pg_advisory_xact_lock(hashtextextended('farol grants', 0))`,
		`SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true)`,
		`SET LOCAL check_function_bodies = off`, `SET LOCAL client_min_messages = warning`); err != nil {
		return err
	}
	list, err := readRepeatables(ctx, tx)
	if err != nil {
		return err
	}
	var changed []repeatable
	for _, f := range list {
		if (f.appliedAt.IsZero() || again && f.replaced) && current <= target { // or else the database is of a newer Farol
			changed = append(changed, f)
		}
	}
	if err := apply(ctx, tx, changed, list); err != nil {
		return err
	}
	if err := execAll(ctx, tx, `SELECT grant_roles() WHERE has_function_privilege('grant_roles()', 'EXECUTE')`); err != nil {
		return fmt.Errorf("grant the roles their rights: %w", err)
	}
	return tx.Commit()
}

// apply runs the files that have changed. If columns of a view changed, all views go,
// with the functions that depend on them, and all files are run.
func apply(ctx context.Context, tx *sql.Tx, changed, all []repeatable) error {
	if len(changed) == 0 {
		return nil
	}
	if err := execAll(ctx, tx, `SAVEPOINT replaced`); err != nil {
		return err
	}
	err := run(ctx, tx, changed)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P16" || pg.Code == "2BP01") { // invalid_table_definition, dependent_objects_still_exist
		if err := execAll(ctx, tx, `ROLLBACK TO replaced`, dropViewsSQL); err != nil {
			return fmt.Errorf("drop the views: %w", err)
		}
		if err = run(ctx, tx, all); err == nil {
			err = execAll(ctx, tx, grantAgainSQL)
		}
	}
	return err
}

func run(ctx context.Context, tx *sql.Tx, list []repeatable) error {
	for _, f := range list {
		if _, err := tx.ExecContext(ctx, f.text); err != nil {
			return fmt.Errorf("apply %s: %w", f.name, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO schema_repeatables (file, digest) VALUES ($1, $2)
			ON CONFLICT (file, digest) DO UPDATE SET applied_at = excluded.applied_at`, f.name, f.digest); err != nil {
			return fmt.Errorf("note that %s was applied: %w", f.name, err)
		}
	}
	return nil
}

func execAll(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// dropViewsSQL drops the views of the schema and what depends on them. It notes the
// rights that were given on these and on functions: grant_roles() knows nothing of
// those that were given by hand.
const dropViewsSQL = `
CREATE TEMPORARY TABLE given ON COMMIT DROP AS
	SELECT 'TABLE' AS kind, c.oid::regclass::text AS name, a.grantee, a.privilege_type AS privilege
	FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
	WHERE c.relkind = 'v' AND c.relnamespace = current_schema()::regnamespace AND a.grantee NOT IN (c.relowner, 0)
	UNION ALL
	SELECT 'FUNCTION', p.oid::regprocedure::text, a.grantee, a.privilege_type
	FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
	WHERE p.pronamespace = current_schema()::regnamespace AND a.grantee NOT IN (p.proowner, 0);
DO $$
DECLARE
	v text;
BEGIN
	FOR v IN SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v' AND relnamespace = current_schema()::regnamespace LOOP
		EXECUTE format('DROP VIEW IF EXISTS %s CASCADE', v);
	END LOOP;
END
$$`

const grantAgainSQL = `
DO $$
DECLARE
	g given;
BEGIN
	FOR g IN SELECT * FROM given WHERE coalesce(to_regclass(CASE kind WHEN 'TABLE' THEN name END)::oid,
			to_regprocedure(CASE kind WHEN 'FUNCTION' THEN name END)::oid) IS NOT NULL LOOP
		EXECUTE format('GRANT %s ON %s %s TO %s', g.privilege, g.kind, g.name, g.grantee::regrole);
	END LOOP;
END
$$`
