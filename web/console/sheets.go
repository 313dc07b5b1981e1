package console

import (
	"slices"

	"github.com/farol-preservation/farol/web/permission"
)

// sheets are all pages, in the order of the list of pages.
func sheets() []sheet {
	return slices.Concat(depositSheets(), []sheet{
		{Path: "/items", Title: "Items", File: "items.html", Nav: "Work", Key: "i", Shell: "farol item list", Needs: permission.ItemsRead, Load: (*Pages).items},
		{Path: "/deposit", Title: "Deposit a bag", File: "deposit.html", Nav: "Work", Key: "b", Needs: permission.DepositsMake, Load: (*Pages).deposit},
		{Path: "/items/{id}", Title: "Item", File: "item.html", Shell: "farol item explain {id}", Needs: permission.ItemsRead, Load: (*Pages).item},
		{Path: "/items/{id}/files", Title: "Files of an item", File: "item-files.html", Shell: "farol item files {id}", Needs: permission.ItemsRead, Load: (*Pages).itemFiles},
	}, machinerySheets(), recordSheets(), restorationSheets(), deletionSheets(), alertSheets(), archiveSheets(), peopleSheets(), accountSheets())
}
