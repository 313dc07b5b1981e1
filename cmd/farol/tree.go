package main

import (
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/accounts"
	"github.com/farol-preservation/farol/internal/commands/archive"
	"github.com/farol-preservation/farol/internal/commands/buckets"
	"github.com/farol-preservation/farol/internal/commands/control"
	"github.com/farol-preservation/farol/internal/commands/items"
	"github.com/farol-preservation/farol/internal/commands/mails"
	"github.com/farol-preservation/farol/internal/commands/reporting"
	"github.com/farol-preservation/farol/internal/commands/validate"
)

// groupTools is the group of cobra's own commands too.
const groupTools = "tools"

type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// commandGroups are all commands that people call, as farol --help lists them.
func commandGroups() []commandGroup {
	return []commandGroup{
		{"try", "Try it:", []*cobra.Command{demoCommand(), devCommand(), validate.Command()}},
		{"items", "List, explain and change work items:", []*cobra.Command{items.Item(), items.Requeue(), items.Plan(), items.WhyNot()}},
		{"archive", "Restore, delete and check what is stored:", []*cobra.Command{
			archive.Object(), archive.File(), archive.Restore(), archive.Delete(), archive.Fixity(), archive.Repair(), archive.Identify(),
			reporting.Report(), reporting.Export(),
		}},
		{"queue", "Control stages, workers and services:", []*cobra.Command{
			control.Stage(), control.Pause(), control.Resume(), control.Workers(), control.Drain(), control.Services(), control.Queue(),
		}},
		{"accounts", "Manage depositors, people and programs:", []*cobra.Command{accounts.Institution(), accounts.User(), accounts.Token(), mails.Mail()}},
		{"run", "Run the services:", []*cobra.Command{
			workCommand(), scheduleCommand(), readBucketsCommand(), mirrorCommand(), serveCommand(),
		}},
		{groupTools, "Maintain the installation:", []*cobra.Command{
			checkCommand(), buckets.Command(), doctorCommand(), janitorCommand(), reconcileCommand(), migrateCommand(), versionCommand(),
		}},
	}
}
