package console

import (
	"slices"

	"github.com/farol-preservation/farol/web/console/accounts"
	"github.com/farol-preservation/farol/web/console/archive"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/queue"
)

// sheets are all pages, in the order of the list of pages.
func sheets() []frame.Sheet {
	return slices.Concat(depositSheets(), queue.ItemSheets(), queue.Sheets(), archive.RecordSheets(), archive.RestorationSheets(), archive.DeletionSheets(), accounts.AlertSheets(), archive.Sheets(), accounts.Sheets(), accounts.OwnSheets())
}
