package console

import "github.com/farol-preservation/farol/web/console/frame"

// Sheets are all pages.
func Sheets() []frame.Sheet { return sheets() }
