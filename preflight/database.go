package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/upkeep"
)

const (
	leastPostgres = 150000
	slightSkew    = time.Minute      // of clocks, beyond which a person should know
	mostSkew      = 15 * time.Minute // beyond which S3 refuses requests
)

// openRegistry opens the database for one check.
func (s Surroundings) openRegistry(ctx context.Context) (*registry.Registry, *pgxpool.Pool, error) {
	single := func(c *pgxpool.Config) { c.MaxConns = 1 }
	db, err := dial.Connect(ctx, string(s.Database.URL), "farol-check", single, dial.Through(s.Database.Pooler))
	if err != nil {
		return nil, nil, err
	}
	return registry.New(db), db, nil
}

func (s Surroundings) checkDatabase(ctx context.Context) []Finding {
	r, db, err := s.openRegistry(ctx)
	if err != nil {
		return []Finding{databaseFailed(err)}
	}
	defer db.Close()
	before := time.Now()
	server, err := r.Server(ctx)
	if err != nil {
		return []Finding{databaseFailed(err)}
	}
	skew := server.Clock.Sub(before.Add(time.Since(before) / 2))
	list := []Finding{postgresAnswers(server), clockFits(skew)}
	if !server.Hidden { // which is among the rights that are missing
		schema := schemaFits(server)
		list = append(list, schema)
		if schema.State == Failed {
			return list // rights on what is not there cannot be had
		}
	}
	if s.Database.Pooler == "prepared" {
		keeps, err := keepsStatements(ctx, db)
		if err != nil {
			return append(list, databaseFailed(err))
		}
		list = append(list, poolerFits(keeps))
	}
	missing, err := r.MissingRights(ctx, s.Command)
	if err != nil {
		return append(list, databaseFailed(err))
	}
	list = append(list, rightsFit(server.User, missing))
	if len(missing) == 0 {
		list = append(list, s.upToDate(ctx, r)...)
	}
	if s.Days > 0 && !s.Starting && len(missing) == 0 {
		list = append(list, s.fixityKeepsUp(ctx, r))
	}
	return list
}

// upToDate warns of a registry that comes from a backup: nothing is claimed.
func (s Surroundings) upToDate(ctx context.Context, r *registry.Registry) []Finding {
	const what = "restored"
	restore, err := upkeep.In(r).Restored(ctx)
	switch {
	case err != nil:
		return []Finding{databaseFailed(err)}
	case restore != nil:
		return []Finding{warn(fault.Database, what, "the registry was restored from a backup: all stages are paused", "run `farol reconcile --dry-run`")}
	}
	return nil
}

// fixityKeepsUp compares the fixity checks that are allowed and made with those that the
// policies need.
func (s Surroundings) fixityKeepsUp(ctx context.Context, r *registry.Registry) Finding {
	const what = "fixity checks"
	pace, err := fixity.In(r).Pace(ctx, s.Days)
	if err != nil {
		return warn(fault.Database, what, "their pace is unknown: "+err.Error(), "run `farol fixity status`")
	}
	switch short, next := pace.Short(human.Number); {
	case short != "":
		return warn(fault.Database, what, short, next)
	case pace.Paused:
		return warn(fault.Database, what, "they are paused", "run `farol fixity status` to see by whom")
	}
	return good(fault.Database, what, "they keep up with the policies")
}

func databaseFailed(err error) Finding {
	return failed(fault.Database, err, func(err error) (fault.Kind, bool) {
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			return fault.Postgres(pg.Code)
		}
		return "", false
	}, "check that PostgreSQL runs, that FAROL_DATABASE_URL is its address, and that this host accepts writes", map[fault.Kind]string{
		fault.Denied:     "correct the user and the password in FAROL_DATABASE_URL, or allow them in PostgreSQL (pg_hba.conf, certificates)",
		fault.Missing:    "create the database that FAROL_DATABASE_URL names, or correct the name",
		fault.Overloaded: "raise max_connections of PostgreSQL, or end other sessions",
	})
}

func postgresAnswers(server registry.Server) Finding {
	const what = "answers"
	found := fmt.Sprintf("PostgreSQL %s, as %s, accepts writes", server.Version, server.User)
	switch {
	case server.Standby || server.ReadOnly:
		return bad(&fault.Error{Service: fault.Database, Kind: fault.ReadOnly, Err: errors.New("it is read-only: a standby, or default_transaction_read_only is on")},
			what, "set FAROL_DATABASE_URL to the primary (it may list all hosts), or set default_transaction_read_only to off")
	case server.Number < leastPostgres:
		return bad(&fault.Error{Service: fault.Database, Kind: fault.WrongAnswer, Err: fmt.Errorf("it is PostgreSQL %s", server.Version)},
			what, "set FAROL_DATABASE_URL to a PostgreSQL 15 or newer")
	}
	return good(fault.Database, what, found)
}

// schemaFits compares the migrations. A newer schema is that of an upgrade under
// way, and serves this program too.
func schemaFits(server registry.Server) Finding {
	const what = "schema"
	ours, err := migrations.Versions()
	if err != nil || len(ours) == 0 {
		return bad(&fault.Error{Service: fault.Database, Kind: fault.WrongAnswer, Err: errors.Join(errors.New("this program has no migrations"), err)}, what, "install Farol again")
	}
	last := ours[len(ours)-1]
	var lacks []string
	for _, v := range ours {
		if !slices.Contains(server.Migrations, v) {
			lacks = append(lacks, fmt.Sprint(v))
		}
	}
	switch {
	case migrations.Old(server.Migrations):
		return bad(&fault.Error{Service: fault.Database, Kind: fault.WrongAnswer, Err: migrations.ErrOldSchema}, what, migrations.OldSchemaAdvice)
	case len(lacks) > 0:
		return bad(&fault.Error{Service: fault.Database, Kind: fault.WrongAnswer, Err: fmt.Errorf("it lacks %s of this program: %s",
			human.Count(len(lacks), "migration", "migrations"), strings.Join(lacks, ", "))}, what, "run `farol migrate up`")
	case server.Migrations[len(server.Migrations)-1] > last:
		return warn(fault.Database, what, fmt.Sprintf("version %d, which is newer than %d of this program", server.Migrations[len(server.Migrations)-1], last),
			"use the version of Farol that migrated the database")
	}
	return good(fault.Database, what, fmt.Sprintf("version %d, as this program needs", last))
}

// clockFits is about the database's clock: leases and delays go by it alone, so that
// only logs and figures suffer.
func clockFits(skew time.Duration) Finding {
	if skew.Abs() > slightSkew {
		return warn(fault.Database, "clock", skewText(skew)+" that of the database", "synchronize the clocks of both hosts by NTP")
	}
	return good(fault.Database, "clock", "within a minute of this host's")
}

// keepsStatements reports whether connections lead to a pooler that keeps prepared statements for
// its clients. It gives them other names in its sessions.
func keepsStatements(ctx context.Context, db *pgxpool.Pool) (keeps bool, err error) {
	err = db.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { // in one session
			const name = "farol_asks"
			if _, err := tx.Prepare(ctx, name, `SELECT 1`); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_prepared_statements p WHERE p.name = $1)`, pgx.QueryExecModeExec, name).Scan(&keeps); err != nil {
				return err
			}
			return c.Conn().Deallocate(ctx, name)
		})
	})
	if err != nil {
		return false, fmt.Errorf("ask whether the pooler keeps prepared statements: %w", err)
	}
	return keeps, nil
}

func poolerFits(keeps bool) Finding {
	const what = "pooler"
	if keeps {
		return good(fault.Database, what, "keeps prepared statements")
	}
	return bad(&fault.Error{Service: fault.Database, Kind: fault.Refused, Err: errors.New("FAROL_DATABASE_URL leads to no pooler that keeps prepared statements")},
		what, "set max_prepared_statements in PgBouncer (1.21 or later), or FAROL_DATABASE_POOLER=transaction")
}

func rightsFit(role string, missing []string) Finding {
	const what = "rights"
	if len(missing) == 0 {
		return good(fault.Database, what, role+" has all rights that are needed")
	}
	f := bad(&fault.Error{Service: fault.Database, Kind: fault.Denied, Err: fmt.Errorf("%s lacks %s: %s",
		role, human.Count(len(missing), "right", "rights"), strings.Join(missing, ", "))}, what,
		fmt.Sprintf("as the owner of the schema run GRANT … TO %s for each, or connect as the owner in FAROL_DATABASE_URL", role))
	f.Missing = missing
	return f
}
