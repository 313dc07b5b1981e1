// Package record has the records of the archive as the REST API answers them, and the filters
// that narrow its lists. What comes in are rows of the registry or JSON; what goes out are the
// same fields in either form.
//
// It has no rules of its own and imports nothing: the registry fills the records, the API
// serves them, and clients, commands and the console read them. The OpenAPI document is made
// from these types.
package record

import (
	"fmt"
	"math"
)

// InTime is a share of copies for people. It is rounded down, so that only all is 100 %. "" is
// where nothing is promised.
func InTime(compliance *float64) string {
	if compliance == nil {
		return ""
	}
	return fmt.Sprintf("%.2f %%", math.Floor(*compliance*100)/100)
}
