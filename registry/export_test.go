package registry

// FiguresSQL are the statements by which Figures looks at the queue's tables.
func FiguresSQL() []string { return []string{bandsSQL, stagesSQL} }

// The statements that estimates are made of.
const (
	RecentSQL   = recentSQL
	StandingSQL = standingSQL
	FrontsSQL   = frontsSQL
)
