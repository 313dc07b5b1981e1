package ops

import (
	"encoding/csv"
	"errors"
	"io"

	"github.com/danielgtaylor/huma/v2"

	"github.com/farol-preservation/farol/registry"
)

// csvType is how a table of rows and columns is asked for.
const csvType = "text/csv"

// Table is an answer that is a table, too: its first row has the names of the columns.
type Table interface{ Table() [][]string }

// csvFormat writes answers that are tables.
func csvFormat() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			t, ok := v.(Table)
			if !ok {
				return errors.New("the answer is no table")
			}
			out := csv.NewWriter(w)
			for _, row := range t.Table() {
				if err := out.Write(registry.HarmlessCells(row)); err != nil {
					return err //nolint:wrapcheck // of the connection
				}
			}
			out.Flush()
			return out.Error() //nolint:wrapcheck // likewise
		},
		Unmarshal: func([]byte, any) error { return errors.New("requests are JSON") },
	}
}
