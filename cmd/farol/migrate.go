package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/migrations"
)

func migrateCommand() *cobra.Command {
	return cli.Group("migrate", "Migrate the database schema", migrateUpCommand(), migrateStatusCommand())
}

func migrateUpCommand() *cobra.Command {
	return op.Command{
		Use:   "up",
		Short: "Apply pending migrations",
		Long: `Apply pending migrations, each in its own transaction, and then, in one transaction,
the changed files of functions and views. A lock makes several processes run one after
another. On a terminal you are asked first, since an older Farol may not work with the
new schema. A file whose content another Farol has replaced since is left alone, unless
you give --reapply.`,
		Example: `  farol migrate up --dry-run
  farol migrate up
  farol migrate up --yes
  farol migrate up --reapply
  farol migrate up --json`,
		Asks:  true,
		Flags: []op.Flag{{Name: "reapply", Kind: op.Truth, Help: "apply also functions and views that another Farol has replaced since"}},
	}.Alone(migrateUp)
}

func migrateUp(c *op.Call) error {
	reapply := c.Given("reapply")
	list, err := migrationStatus(c.Cmd)
	if err != nil {
		return err
	}
	lacks, replaced := missing(list)
	if reapply {
		lacks, replaced = append(lacks, replaced...), nil
	}
	if len(lacks) == 0 && !c.Care.DryRun {
		c.Care.Yes = true // nothing is worth a question
	}
	does, err := c.Care.Allows(c.Cmd, "Apply "+human.Count(len(lacks), "file", "files"), true)
	if err != nil {
		return err
	}
	var text strings.Builder
	said := "would apply "
	if does {
		if list, err = applyMigrations(c.Cmd, reapply); err != nil {
			return err
		}
		said = "applied "
	}
	for _, file := range lacks {
		text.WriteString(said + file + "\n")
	}
	for _, file := range replaced {
		text.WriteString("left alone " + file + ": another Farol has replaced it since; --reapply applies it again\n")
	}
	if does || len(lacks) == 0 {
		text.WriteString("The database is up to date, with " + human.Count(migrationsIn(list), "migration", "migrations") + ".\n")
	}
	err = cli.Printf(c.Cmd, c.JSON, list, "%s", text.String())
	if !does {
		err = errors.Join(err, cli.Unchanged(c.Cmd))
	}
	return err
}

// applyMigrations returns what the database has then.
func applyMigrations(cmd *cobra.Command, reapply bool) ([]migrations.Applied, error) {
	config, err := connect.Load(settings.Session{})
	if err != nil {
		return nil, err
	}
	up := migrations.Up
	if reapply {
		up = migrations.Reapply
	}
	if err := up(cmd.Context(), string(config.URL)); err != nil {
		return nil, ofOldSchema(err)
	}
	return migrationStatus(cmd)
}

func migrateStatusCommand() *cobra.Command {
	return op.Command{
		Use:   "status",
		Short: "List applied and pending migrations",
		Long: `List migrations, and files of functions and views, with the time each was applied.

Exit codes: 0 all are applied; 1 some are pending; 2 usage error.`,
	}.Alone(func(c *op.Call) error {
		list, err := migrationStatus(c.Cmd)
		if err != nil {
			return err
		}
		if err := cli.PrintList(c.Cmd, c.JSON, list, "migrations", []string{"VERSION", "APPLIED", "FILE"}, statusRow); err != nil {
			return err
		}
		if lacks, _ := missing(list); len(lacks) > 0 {
			return cli.Failure{
				Code: cli.ExitFailed, Err: fmt.Errorf("the database lacks %s", human.Count(len(lacks), "file", "files")),
				Next: "run `farol migrate up`",
			}
		}
		return nil
	})
}

// migrationStatus finds out first, in bounded time, whether the database answers.
func migrationStatus(cmd *cobra.Command) ([]migrations.Applied, error) {
	config, err := connect.Load(settings.Session{})
	if err != nil {
		return nil, err
	}
	s, err := connect.Open(cmd.Context(), "migrate", connect.Needs{Database: &config.Database})
	if err != nil {
		return nil, err
	}
	s.Close()
	list, err := migrations.Status(cmd.Context(), string(config.URL))
	return list, ofOldSchema(err)
}

// missing lists what the database lacks, and the files that it has in another form since.
func missing(list []migrations.Applied) (files, replaced []string) {
	for _, m := range list {
		switch {
		case m.At.IsZero():
			files = append(files, m.File)
		case m.Replaced:
			replaced = append(replaced, m.File)
		}
	}
	return files, replaced
}

func migrationsIn(list []migrations.Applied) (n int) {
	for _, m := range list {
		if !m.Repeatable {
			n++
		}
	}
	return n
}

func statusRow(m migrations.Applied) []string {
	version, applied := fmt.Sprint(m.Version), "not yet"
	if m.Repeatable {
		version = "repeatable"
	}
	switch {
	case m.Replaced:
		applied = "replaced since"
	case !m.At.IsZero():
		applied = human.Time(m.At)
	}
	return []string{version, applied, m.File}
}

// ofOldSchema adds the next step to the error of a database that cannot be migrated.
func ofOldSchema(err error) error {
	if errors.Is(err, migrations.ErrOldSchema) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: migrations.OldSchemaAdvice}
	}
	return err
}
