// Package queue has the pages about work: items, the queue, plans, stages, workers and the
// services that they need. In comes what a person asks for; out goes what a template shows.
package queue

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// Routes answer other requests than for pages.
func Routes() []frame.Route {
	return []frame.Route{{Pattern: "GET /items.csv", Serve: itemsCSV}, {Pattern: "GET /items/{id}/explanation.txt", Serve: explanation}}
}

// Sheets are the pages for those who look after the queue.
func Sheets() []frame.Sheet {
	const work, machinery = "Work", "Machinery"
	return []frame.Sheet{
		{Path: "/items/groups", Title: "Groups of failures", File: "groups.html", Nav: work, Key: "e", Shell: "farol item list --needs-review", Needs: permission.ItemsRead, Staff: true, Load: loadGroups},
		{Path: "/plans", Title: "Plans", File: "plans.html", Nav: work, Key: "p", Shell: "farol plan list", Needs: permission.PlansRead, Load: loadPlans},
		{Path: "/plans/new", Title: "Make a plan", File: "plan-new.html", Shell: "farol plan requeue", Needs: permission.PlansMake, Load: loadNewPlan},
		{Path: "/plans/{id}", Title: "Plan", File: "plan.html", Shell: "farol plan show {id}", Needs: permission.PlansRead, Load: loadPlan},
		{Path: "/queue", Title: "Queue", File: "queue.html", Nav: machinery, Key: "q", Shell: "farol stage list", Needs: permission.QueueRead, Load: loadQueue},
		{Path: "/stages", Title: "Stages", File: "stages.html", Nav: machinery, Shell: "farol stage list", Needs: permission.QueueRead, Staff: true, Load: loadStages},
		{Path: "/stages/{action}/{stage}", Title: "Stage", File: "stage.html", Shell: "farol stage list", Needs: permission.QueueRead, Staff: true, Load: loadStage},
		{Path: "/workers", Title: "Workers", File: "workers.html", Nav: machinery, Key: "w", Shell: "farol workers", Needs: permission.ItemsWorkers, Staff: true, Load: loadWorkers},
		{Path: "/services", Title: "Services", File: "services.html", Nav: machinery, Shell: "farol services", Needs: permission.ItemsWorkers, Staff: true, Load: loadServices},
		{Path: "/schedules", Title: "Schedules", File: "schedules.html", Nav: machinery, Shell: "farol schedule list", Needs: permission.SchedulesRead, Load: loadSchedules},
		{Path: "/mirror", Title: "Mirror", File: "mirror.html", Nav: machinery, Shell: "farol mirror status", Needs: permission.ItemsWorkers, Staff: true, Load: loadMirror},
		{Path: "/wall", Title: "Wall", File: "wall.html", Nav: machinery, Needs: permission.QueueRead, Staff: true, Load: loadWall},
	}
}

// grid is the queue as a table: a row for each stage, a column for each size band.
type grid struct {
	Bands []string
	Rows  []gridRow
	Total record.QueueBand

	NotKnown []string // why it is not known of some cells when they are empty
}

// gridRow is a stage of the queue.
type gridRow struct {
	record.StageSettings

	Cells []gridCell
	All   gridCell
	Late  bool // its first item has been due for longer than the stage allows
}

// gridCell are the items of a stage in one size band.
type gridCell struct {
	record.QueueBand

	Live  int64  // that are not parked
	Empty string // how long until they have left the stage; "": not known, or it has none
}

// Path leads to the items of a cell, in a tab of their list.
func (c gridCell) Path(tab string) string {
	return words.LinkTo("/items", "tab", tab, "stage", c.Stage, "action", c.Action)
}

// Path leads to the page of a stage.
func (r gridRow) Path() string { return words.StagePath(r.Action, r.Stage) }

// bandNames are the bounds of the size bands, in their order.
func bandNames() []string {
	return []string{"under 64 MiB", "64 MiB to 1 GiB", "1 to 64 GiB", "64 GiB and more"}
}

// gridOf arranges the queue by stages, in their order. Of the stages that are not of ingests,
// those are left out that have no items and are not paused.
func gridOf(q record.QueueView, stages []record.StageSettings) grid {
	g := grid{Bands: bandNames(), Total: q.Total}
	for _, b := range q.Bands {
		for int(b.SizeBand) >= len(g.Bands) { // one that a later version has added
			g.Bands = append(g.Bands, "band "+strconv.Itoa(len(g.Bands)))
		}
	}
	for _, s := range stages {
		r := gridRow{StageSettings: s, Cells: make([]gridCell, len(g.Bands))}
		r.All.Action, r.All.Stage = s.Action, s.Stage
		for i := range r.Cells {
			r.Cells[i].Action, r.Cells[i].Stage = s.Action, s.Stage
		}
		for _, b := range q.Bands {
			if b.Action == s.Action && b.Stage == s.Stage && b.SizeBand >= 0 {
				r.Cells[b.SizeBand].add(b.QueueBand)
				r.All.add(b.QueueBand)
				g.emptied(&r.Cells[b.SizeBand], b)
			}
		}
		r.Waiting, r.Running, r.Parked = r.All.Live-r.All.Running, r.All.Running, r.All.Parked // of the moment that the cells are of
		r.Late = !s.Paused && s.Overdue > 0 && r.All.OldestDue > s.Overdue
		if s.Action == "Ingest" || s.Paused || r.All.Live+r.All.Parked > 0 {
			g.Rows = append(g.Rows, r)
		}
	}
	return g
}

// emptied says when a cell is empty, where that is known.
func (g *grid) emptied(c *gridCell, b record.BandView) {
	switch {
	case b.Due+b.Running == 0:
	case b.Empty != nil:
		c.Empty = words.Within(words.Duration(b.Empty.Low), words.Duration(b.Empty.High))
	case !slices.Contains(g.NotKnown, b.Unknown):
		g.NotKnown = append(g.NotKnown, b.Unknown)
	}
}

func (c *gridCell) add(b record.QueueBand) {
	c.Due, c.Delayed, c.Waiting = c.Due+b.Due, c.Delayed+b.Delayed, c.Waiting+b.Waiting
	c.Running, c.Parked, c.Bytes = c.Running+b.Running, c.Parked+b.Parked, c.Bytes+b.Bytes
	c.OldestDue = max(c.OldestDue, b.OldestDue)
	c.Live = c.Due + c.Delayed + c.Waiting + c.Running
}

// late are the stages whose first item has been due for too long.
func (g grid) late() (list []gridRow) {
	for _, r := range g.Rows {
		if r.Late {
			list = append(list, r)
		}
	}
	return list
}

// paused are the stages that are paused.
func (g grid) paused() (list []gridRow) {
	for _, r := range g.Rows {
		if r.Paused {
			list = append(list, r)
		}
	}
	return list
}

// sizesOf says which sizes a pool takes.
func sizesOf(least, most int64) string {
	switch {
	case least > 0 && most > 0:
		return fmt.Sprintf("%s to %s", words.Bytes(least).Short(), words.Bytes(most).Short())
	case least > 0:
		return words.Bytes(least).Short() + " and more"
	case most > 0:
		return "up to " + words.Bytes(most).Short()
	}
	return "any size"
}
