package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/migrations"
)

func migrateCommand() *cobra.Command {
	return cli.Group("migrate", "Migrate the database schema", migrateUpCommand(), migrateStatusCommand())
}

func migrateUpCommand() *cobra.Command {
	var care cli.Caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply missing migrations",
		Long: `Apply missing migrations, each in its own transaction. Several processes may do so at
once: a lock admits one at a time. On a terminal you are asked first, since an older
Farol may not work with the new schema.`,
		Example: `  farol migrate up --dry-run
  farol migrate up
  farol migrate up --yes
  farol migrate up --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return migrateUp(cmd, care, asJSON) },
	}
	care.Flags(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

func migrateUp(cmd *cobra.Command, care cli.Caution, asJSON bool) error {
	list, err := migrationStatus(cmd)
	if err != nil {
		return err
	}
	var lacks []string
	for _, m := range list {
		if m.At.IsZero() {
			lacks = append(lacks, m.File)
		}
	}
	if len(lacks) == 0 && !care.DryRun {
		care.Yes = true // nothing is worth a question
	}
	does, err := care.Allows(cmd, "Apply "+human.Count(len(lacks), "migration", "migrations"), true)
	if err != nil {
		return err
	}
	var told strings.Builder
	said := "would apply "
	if does {
		if list, err = applyMigrations(cmd); err != nil {
			return err
		}
		said = "applied "
	}
	for _, file := range lacks {
		told.WriteString(said + file + "\n")
	}
	if does || len(lacks) == 0 {
		told.WriteString("The database is up to date, with " + human.Count(len(list), "migration", "migrations") + ".\n")
	}
	if asJSON {
		err = cli.WriteJSON(cmd.OutOrStdout(), list)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), told.String())
	}
	if !does {
		err = errors.Join(err, cli.Unchanged(cmd))
	}
	return err
}

// applyMigrations returns what the database has then.
func applyMigrations(cmd *cobra.Command) ([]migrations.Applied, error) {
	config, err := connect.Load(settings.ReadSession)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(cmd.Context(), string(config.URL)); err != nil {
		return nil, err
	}
	return migrationStatus(cmd)
}

func migrateStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "List migrations and when they were applied",
		Long:  "List migrations and when they were applied. The exit code is 1 if some are missing.",
		Example: `  farol migrate status
  farol migrate status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := migrationStatus(cmd)
			if err != nil {
				return err
			}
			var rows [][]string
			missing := 0
			for _, m := range list {
				applied := "not yet"
				if m.At.IsZero() {
					missing++
				} else {
					applied = human.Time(m.At)
				}
				rows = append(rows, []string{fmt.Sprint(m.Version), applied, m.File})
			}
			if asJSON {
				err = cli.WriteJSON(cmd.OutOrStdout(), list)
			} else {
				err = cli.WriteTable(cmd.OutOrStdout(), []string{"VERSION", "APPLIED", "FILE"}, rows)
			}
			if err == nil && missing > 0 {
				return cli.Failure{
					Code: cli.ExitFailed, Err: fmt.Errorf("the database lacks %s", human.Count(missing, "migration", "migrations")),
					Next: "run `farol migrate up`",
				}
			}
			return err
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// migrationStatus finds out first, in bounded time, whether the database answers.
func migrationStatus(cmd *cobra.Command) ([]migrations.Applied, error) {
	config, err := connect.Load(settings.ReadSession)
	if err != nil {
		return nil, err
	}
	s, err := connect.Open(cmd.Context(), "migrate", connect.Needs{Database: &config})
	if err != nil {
		return nil, err
	}
	s.Close()
	return migrations.Status(cmd.Context(), string(config.URL))
}
