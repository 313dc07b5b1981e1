package auth

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const good = "correct horse battery staple"

// door is signing in at a registry of the test's own. Its passwords are hashed with less
// work than in production.
type door struct {
	*Auth

	t   *testing.T
	db  *pgxpool.Pool
	now atomic.Pointer[time.Time]
}

func newDoor(t *testing.T) *door {
	t.Helper()
	db := testenv.Database(t)
	keys := must.Get(ParseKeys(NewKey()))(t)
	d := &door{t: t, db: db}
	now := time.Now()
	d.now.Store(&now)
	d.Auth = New(registry.New(db), Options{Keys: keys, Issuer: "Farol", Now: func() time.Time { return *d.now.Load() }})
	d.hasher = newHasher(parameters{memory: 64, passes: 1, lanes: 1})
	return d
}

func (d *door) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.db.Exec(context.Background(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *door) count(sql string, args ...any) (n int) {
	d.t.Helper()
	if err := d.db.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// person registers a person with a password.
func (d *door) person(email, role, institution string) people.Person {
	d.t.Helper()
	ctx := context.Background()
	if institution != "" {
		d.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', $1, 'in.' || $1, 'out.' || $1) ON CONFLICT DO NOTHING`, institution)
	}
	u := must.Get(d.registry.AddUser(ctx, record.User{Email: email, Name: "Some Person", Role: role, Institution: institution}))(d.t)
	hash, err := d.hasher.hash(ctx, good)
	if err == nil {
		err = d.people.SetPassword(ctx, u.ID, hash)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return d.again(u.ID)
}

func (d *door) again(id int64) people.Person {
	d.t.Helper()
	p := must.Get(d.people.ByID(context.Background(), id))(d.t)
	return p
}

// addresses are of different people: attempts from one would be limited.
var addresses atomic.Uint32 //nolint:gochecknoglobals // a sequence

func somewhere() From {
	n := addresses.Add(1)
	return From{IP: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), Agent: "a browser"}
}

// enter signs a person in with the right password.
func (d *door) enter(p people.Person) SignedIn {
	d.t.Helper()
	s := must.Get(d.SignIn(d.t.Context(), p.Email, good, somewhere()))(d.t)
	return s
}

func (d *door) session(secret string) record.Session {
	d.t.Helper()
	s, _, err := d.people.SessionOf(context.Background(), secret)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *door) ended(secret string) bool {
	_, _, err := d.people.SessionOf(context.Background(), secret)
	return errors.Is(err, registry.ErrNotFound)
}

// strong gives a person a second factor, and returns what its app shows.
func (d *door) strong(p people.Person) (code func() string, recovery []string) {
	d.t.Helper()
	s := d.enter(p)
	offer := must.Get(d.SetUpFactor(p))(d.t)
	code = func() string { return d.code(offer) }
	raised, recovery, err := d.ConfirmFactor(d.t.Context(), d.session(s.Secret), offer.Pending, code(), somewhere())
	if err != nil || raised.Level != people.LevelFull || !d.ended(s.Secret) {
		d.t.Fatalf("set up: %+v, %v", raised, err)
	}
	return code, recovery
}

func (d *door) code(offer SetUp) string {
	d.t.Helper()
	c := must.Get(totp.GenerateCode(offer.Secret, *d.now.Load()))(d.t)
	return c
}

func (d *door) later(by time.Duration) {
	now := d.now.Load().Add(by)
	d.now.Store(&now)
}
