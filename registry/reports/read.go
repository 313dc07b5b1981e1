package reports

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Grouping is what the rows of a report stand for.
type Grouping = record.Grouping

// What rows may stand for. Not every report has all of them.
const (
	ByInstitution Grouping = "institution"
	ByOption      Grouping = "option"
	ByMonth       Grouping = "month"
	ByAction      Grouping = "action"
	ByDay         Grouping = "day"
)

// scoped are arguments for a scope. A parent institution has the sums of its subscribers,
// too; each institution in a report is one line of sums.
func scoped(s registry.Scope, institution string) pgx.NamedArgs {
	own, _ := s.Institution()
	return pgx.NamedArgs{"all": s.All(), "own": own, "institution": institution}
}

// onDay is the day for which a report is asked: without one, today.
const onDay = `coalesce(nullif(@on, '')::date, (now() AT TIME ZONE 'UTC')::date)`

const within = `(@all OR i.id = @own OR i.member_institution_id = @own) AND (@institution = '' OR i.identifier = @institution)`

// Both go by holdings_daily_pkey: the first reads the rows of one day, the last on which was
// counted, and the second of the last such days of months.
const (
	depositsSQL = `
SELECT %s AS key, d.day::text AS day, sum(d.objects)::bigint AS objects, sum(d.files)::bigint AS files, sum(d.bytes)::bigint AS bytes
FROM holdings_daily d JOIN institutions i ON i.id = d.institution_id
WHERE d.day = (SELECT max(day) FROM holdings_daily WHERE day <= ` + onDay + `) AND ` + within + `
GROUP BY 1, d.day ORDER BY 1`

	monthsSQL = `
WITH lasts AS (
	SELECT l.day FROM generate_series(date_trunc('month', ` + onDay + `::timestamp) - make_interval(months => @months - 1), ` + onDay + `, '1 month') m (begins)
	CROSS JOIN LATERAL (SELECT max(day) AS day FROM holdings_daily h WHERE h.day >= m.begins AND h.day < m.begins + interval '1 month' AND h.day <= ` + onDay + `) l
	WHERE l.day IS NOT NULL
)
SELECT to_char(d.day, 'YYYY-MM') AS key, d.day::text AS day, sum(d.objects)::bigint AS objects, sum(d.files)::bigint AS files, sum(d.bytes)::bigint AS bytes
FROM lasts l JOIN holdings_daily d ON d.day = l.day JOIN institutions i ON i.id = d.institution_id
WHERE ` + within + `
GROUP BY d.day ORDER BY d.day`
)

// DepositQuery says which report of deposits is asked for.
type DepositQuery struct {
	By          Grouping
	Institution string // only this one, by its identifier
	Months      int    // how many, by month
	On          string // as it was counted last on this day or before, such as 2026-11-26; "": today
}

// Deposits reports what is in storage within a scope: by institution or storage option as
// counted last, or by month at the last count of each of the last months.
func (r Records) Deposits(ctx context.Context, s registry.Scope, q DepositQuery) ([]record.Deposit, error) {
	args, sql := scoped(s, q.Institution), monthsSQL
	args["on"] = q.On
	switch q.By {
	case ByInstitution:
		sql = fmt.Sprintf(depositsSQL, `i.identifier`)
	case ByOption:
		sql = fmt.Sprintf(depositsSQL, `d.storage_option`)
	case ByMonth:
		args["months"] = q.Months
	case ByAction, ByDay:
		return nil, fmt.Errorf("report deposits: %w: there is no report by %s", registry.ErrRefused, q.By)
	}
	return registry.Collect[record.Deposit](ctx, r.db, "report deposits", sql, args)
}

// costsSQL goes by holdings_daily_pkey. A mean is of the days that were counted, on which an
// institution without a row had nothing.
const costsSQL = `
WITH counted AS (
	SELECT count(DISTINCT day) AS days FROM holdings_daily WHERE day >= @month::date AND day < (@month::date + interval '1 month')
), used AS (
	SELECT i.identifier, d.storage_option, c.days, sum(d.bytes) / c.days AS bytes
	FROM holdings_daily d JOIN institutions i ON i.id = d.institution_id CROSS JOIN counted c
	WHERE d.day >= @month::date AND d.day < (@month::date + interval '1 month') AND ` + within + `
	GROUP BY i.identifier, d.storage_option, c.days
)
SELECT u.identifier AS institution, u.storage_option, u.days, round(u.bytes)::bigint AS bytes, p.included_tib::text AS included_tib,
	p.per_gib_month::text AS per_gib_month,
	round(greatest(u.bytes / 1073741824 - coalesce(p.included_tib, 0) * 1024, 0) * p.per_gib_month, 2)::text AS cost
FROM used u JOIN storage_options p ON p.name = u.storage_option
ORDER BY 1, 2`

// Costs reports what storage costs in a month, which begins with a day such as 2026-11-01,
// within a scope or of one institution in it.
func (r Records) Costs(ctx context.Context, s registry.Scope, institution, month string) ([]record.Cost, error) {
	args := scoped(s, institution)
	args["month"] = month
	return registry.Collect[record.Cost](ctx, r.db, "report costs", costsSQL, args)
}

// outcomesOfSQL goes by daily_outcomes_pkey.
const outcomesOfSQL = `
SELECT %s AS key, d.result, sum(d.items)::bigint AS items, sum(d.bytes)::bigint AS bytes
FROM daily_outcomes d JOIN institutions i ON i.id = d.institution_id
WHERE d.day >= @from::date AND d.day <= @to::date AND ` + within + `
GROUP BY 1, 2 ORDER BY 1, 2`

// Outcomes reports how items ended on some days, from and to being such as 2026-11-26,
// within a scope or of one institution in it: by action, institution or day.
func (r Records) Outcomes(ctx context.Context, s registry.Scope, by Grouping, institution, from, to string) ([]record.Outcome, error) {
	args := scoped(s, institution)
	args["from"], args["to"] = from, to
	key := ""
	switch by {
	case ByAction:
		key = `d.action`
	case ByInstitution:
		key = `i.identifier`
	case ByDay:
		key = `d.day::text`
	case ByOption, ByMonth:
		return nil, fmt.Errorf("report outcomes: %w: there is no report by %s", registry.ErrRefused, by)
	}
	return registry.Collect[record.Outcome](ctx, r.db, "report outcomes", fmt.Sprintf(outcomesOfSQL, key), args)
}
