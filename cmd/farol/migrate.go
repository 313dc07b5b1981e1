package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/migrations"
)

func migrateCommand() *cobra.Command {
	return group("migrate", "Bring the database's schema up to date", migrateUpCommand(), migrateStatusCommand())
}

func migrateUpCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that the database lacks",
		Long: `Apply the migrations that the database lacks, each in a transaction of its own.
Any number of processes may do so at once; they take turns.`,
		Example: `  farol migrate up
  farol migrate up --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, err := migrationStatus(cmd)
			if err != nil {
				return err
			}
			config, err := load(readSessionConfig)
			if err != nil {
				return err
			}
			if err := migrations.Up(cmd.Context(), string(config.URL)); err != nil {
				return err
			}
			if asJSON {
				list, err := migrationStatus(cmd)
				if err != nil {
					return err
				}
				return writeJSON(cmd.OutOrStdout(), list)
			}
			var told strings.Builder
			for _, m := range before {
				if m.At.IsZero() {
					told.WriteString("applied " + m.File + "\n")
				}
			}
			told.WriteString("The database is up to date, with " + count(len(before), "migration", "migrations") + ".\n")
			_, err = io.WriteString(cmd.OutOrStdout(), told.String())
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func migrateStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations the database has",
		Long:  "Tell which migrations the database has. The exit code is 1 if it lacks some.",
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
					applied = at(m.At)
				}
				rows = append(rows, []string{fmt.Sprint(m.Version), applied, m.File})
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), list)
			} else {
				err = writeTable(cmd.OutOrStdout(), []string{"VERSION", "APPLIED", "FILE"}, rows)
			}
			if err == nil && missing > 0 {
				return failure{
					code: exitFailed, err: fmt.Errorf("the database lacks %s", count(missing, "migration", "migrations")),
					next: "run `farol migrate up`",
				}
			}
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// migrationStatus finds out first, in bounded time, whether the database answers.
func migrationStatus(cmd *cobra.Command) ([]migrations.Applied, error) {
	config, err := load(readSessionConfig)
	if err != nil {
		return nil, err
	}
	s, err := connect(cmd.Context(), "migrate", needs{Database: &config})
	if err != nil {
		return nil, err
	}
	s.close()
	return migrations.Status(cmd.Context(), string(config.URL))
}
