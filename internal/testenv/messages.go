package testenv

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PutMessages appends messages to the topic log, all in one transaction.
func PutMessages(t testing.TB, db *pgxpool.Pool, topic string, bodies ...string) {
	t.Helper()
	Exec(t, db, `INSERT INTO topic_messages (topic, body) SELECT $1, b FROM unnest($2::text[]) WITH ORDINALITY AS u (b, n) ORDER BY n`, topic, bodies)
}

// Numbers are the decimal numbers of a range, as bodies of messages.
func Numbers(from, to int) (list []string) {
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return list
}
