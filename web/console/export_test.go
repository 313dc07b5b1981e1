package console

import (
	"time"

	"github.com/farol-preservation/farol/record"
)

// Text is how a page shows a text of others.
func Ago(d time.Duration) string { return ago(d) }

func Text(s string) string { return text(s) }

// Cut is how a page shows a long name.
func Cut(s string) (short, whole string) {
	c := cut(s)
	return c.short(), c.Whole
}

// Number is how a page shows a number.
func Number(n int64) string { return number(n) }

// GridRuns is how many items run at a stage, as the queue's table says it: within the cap, and in all.
func GridRuns(q record.QueueView, s record.StageSettings) (ofCap, all int64) {
	r := gridOf(q, []record.StageSettings{s}).Rows[0]
	return r.Running, r.All.Running
}

// Lane is a lane of a timeline.
type Lane = lane

// TimelineOf is the timeline of an item.
func TimelineOf(item record.WorkItem, h record.ItemHistory, why []record.Obstacle, now time.Time, all bool) ([]Lane, int) {
	t := timelineOf(item, h, why, now, all)
	return t.Lanes, t.Earlier
}

// Sheet is a page.
type Sheet = sheet

// Sheets are all pages.
func Sheets() []Sheet { return sheets() }

// Within is how a page shows an interval of time.
func Within(low, high time.Duration) string { return within(low, high) }
