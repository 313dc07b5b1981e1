package answer

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
)

// Paging is the part of a list's query that all lists have.
type Paging struct {
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many at most"`
	After string `query:"after" maxLength:"2000" doc:"Where the page begins; only as the answer before gave it in next"`
}

// Before begins the first page of a list that goes by ID elsewhere than at the newest record.
type Before struct {
	BeforeID int64 `query:"before" minimum:"1" doc:"Begin below this ID, in a list in the order of IDs; after goes before it"`
}

// Behind does so in a list that may also go by identifier.
type Behind struct {
	Before

	AfterIdentifier string `query:"after_identifier" maxLength:"1100" doc:"Begin behind this identifier, in a list in the order of identifiers; after goes before it"`
}

// Suits refuses a beginning that the order of the list does not have.
func (b Behind) Suits(byID, byIdentifier bool) error {
	switch {
	case b.BeforeID != 0 && !byID:
		return ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "before is for a list in the order of IDs, and with these filters the list has another; leave it out")
	case b.AfterIdentifier != "" && !byIdentifier:
		return ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "after_identifier is for a list in the order of identifiers, and with these filters the list has another; leave it out")
	}
	return nil
}

// Key is where the list begins.
func (b Behind) Key() browse.Key { return browse.Key{ID: b.BeforeID, Identifier: b.AfterIdentifier} }

// From has the first page of a list begin behind a record that the caller names. The zero
// key is the beginning of the list.
func (p Paging) From(name string, filter any, key browse.Key) Paging {
	if p.After == "" && key != (browse.Key{}) {
		p.After = EncodeCursor(name, filter, key)
	}
	return p
}

// cursor is where a page begins, and which list it is of.
type cursor[K any] struct {
	Of  string `json:"f"` // fingerprint of the list and its filters
	Key K      `json:"k"` // after which the page begins
}

// fingerprint is of a list with its filters, without where the page begins and how many
// there are on it.
func fingerprint(name string, filter any) string {
	text, err := json.Marshal(filter)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte(name+" "), text...))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// EncodeCursor is opaque to programs.
func EncodeCursor[K any](name string, filter any, key K) string {
	text, err := json.Marshal(cursor[K]{fingerprint(name, filter), key})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeCursor returns the key after which a page begins, and the zero key for the first
// page. A cursor of another list, or of other filters, is a problem.
func DecodeCursor[K any](name string, filter any, after string) (key K, err error) {
	if after == "" {
		return key, nil
	}
	var c cursor[K]
	text, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil || c.Of != fingerprint(name, filter) {
		return key, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "after is not of this list with these filters; follow next, and leave it out for the first page")
	}
	return c.Key, nil
}

// PageOf makes a page of one row more than it may have: that one says that there are more.
func PageOf[T any](ctx context.Context, found []T, limit int, cursorOf func(T) string) *Body[List[T]] {
	out := List[T]{Items: found}
	if len(found) > limit {
		out.Items = found[:limit]
		out.Next = nextURL(ctx, cursorOf(found[limit-1]))
	}
	return Of(out)
}

// Counting has a list counted.
type Counting struct {
	Count bool `query:"count" doc:"Whether to count what the filters find, up to 10,000"`
}

// count is how many records a list has.
type count struct {
	Value int64 `json:"value"`
	Exact bool  `json:"exact" doc:"false: there are more"`
}

// Page reads a page of a list of package browse.
func Page[T any, F browse.Filter](ctx context.Context, s *Site, c access.Caller, name string, wanted F, p Paging, n Counting,
	read func(browse.Records, context.Context, F, browse.Page) ([]T, browse.Key, error),
) (*Body[List[T]], error) {
	after, err := DecodeCursor[browse.Key](name, wanted, p.After)
	if err != nil {
		return nil, err
	}
	found, next, err := read(s.Browse(c), ctx, wanted, browse.Page{Limit: p.Limit, After: after})
	if err != nil {
		return nil, err
	}
	out := List[T]{Items: found}
	if next != (browse.Key{}) {
		out.Next = nextURL(ctx, EncodeCursor(name, wanted, next))
	}
	if n.Count {
		out.Count = &count{}
		if out.Count.Value, out.Count.Exact, err = s.Browse(c).Count(ctx, wanted); err != nil {
			return nil, err
		}
	}
	return Of(out), nil
}

// nextURL is the URL of the request with another beginning.
func nextURL(ctx context.Context, after string) *string {
	u := *ops.Request(ctx).URL
	q := u.Query()
	q.Set("after", after)
	u.RawQuery = q.Encode()
	next := u.RequestURI()
	return &next
}

// Tagged is an answer with the version of the record that it shows.
type Tagged[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

// WithTag answers with a record and its version.
func WithTag[T any](v T, version int64) *Tagged[T] {
	return &Tagged[T]{`"` + strconv.FormatInt(version, 10) + `"`, v}
}

// Condition is the version that a change was decided on.
type Condition struct {
	IfMatch string `header:"If-Match" maxLength:"200" doc:"ETag of the record when the change was decided; if the record has changed, nothing is done"`
}

// Version is the one that If-Match names; 0: any.
func (m Condition) Version() (int64, error) {
	text := strings.TrimSpace(m.IfMatch)
	if text == "" || text == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fmt.Sprintf("If-Match is %s; send the ETag of the record as it was given", text))
	}
	return n, nil
}
