package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry/stores"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// storeAbilities tells of each store what it can do, as far as the trials have shown, and what
// Farol does instead of what it cannot; and keeps that for all processes.
func (s Surroundings) storeAbilities(ctx context.Context, client *storage.Client) (list []Finding) {
	all, _ := client.Abilities()
	slices.SortFunc(all, func(a, b ability.Known) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	for i := range all {
		if _, tried := s.tried.Load(all[i].Endpoint); tried {
			all[i].Measured = time.Now().UTC()
			list = append(list, abilitiesOf(all[i]))
		}
	}
	if s.Database == nil || len(list) == 0 {
		return list
	}
	r, db, err := s.openRegistry(ctx)
	if err != nil {
		return list // the database has a row of its own
	}
	defer db.Close()
	for _, a := range all {
		known, err := json.Marshal(a)
		if err == nil {
			err = stores.In(r).Save(ctx, known)
		}
		if err != nil {
			return append(list, warn("s3", "store", "what "+a.Endpoint+" can do was found out, and is not kept: "+err.Error(),
				"try again when the database answers: until then each process finds it out by itself"))
		}
	}
	return list
}

// abilitiesOf is what a store can do, in words.
func abilitiesOf(a ability.Known) Finding {
	var can, cannot []string
	for _, way := range ability.Ways() {
		seen, known := a.Ways[way]
		switch {
		case known && seen.Can:
			can = append(can, string(way))
		case known:
			cannot = append(cannot, fmt.Sprintf("%s (Farol %s)", way, way.Instead()))
		}
	}
	found := fmt.Sprintf("%s, %s: can %s", a.Endpoint, cmp.Or(a.Server, "a server without a name"), strings.Join(can, ", "))
	if len(cannot) == 0 {
		return good("s3", "store", found)
	}
	return warn("s3", "store", found+"; cannot "+strings.Join(cannot, ", "),
		"nothing: Farol proves as much by other ways. What is read a second time costs time, and money where reading is charged (docs/stores.md)")
}
