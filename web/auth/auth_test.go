package auth

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

func TestLinksAreGoodOnce(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	old := d.enter(p)
	link := func(kind string) string {
		t.Helper()
		secret := must.Get(d.people.MakeLink(t.Context(), p.ID, kind))(t)
		return secret
	}
	void, secret := link(people.Reset), link(people.Reset)
	for what, wrong := range map[string]string{"the link before": void, "none": "x", "an empty one": "", "NUL": "\x00"} {
		if _, err := d.SetPasswordByLink(t.Context(), wrong, "another long password", somewhere()); !errors.Is(err, ErrLink) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.SignInByLink(t.Context(), secret, somewhere()); !errors.Is(err, ErrLink) {
		t.Errorf("a link for a password signs in: %v", err)
	}
	if _, err := d.SetPasswordByLink(t.Context(), secret, "short", somewhere()); !errors.Is(err, ErrWeak) {
		t.Errorf("a weak password: %v", err)
	}
	if got, err := d.PersonOfLink(t.Context(), secret); err != nil || got.Email != p.Email {
		t.Errorf("after a weak password the link is gone: %v", err)
	}
	s, err := d.SetPasswordByLink(t.Context(), secret, "another long password", somewhere())
	if err != nil || s.Level != people.LevelFull {
		t.Fatal(s, err)
	}
	if !d.ended(old.Secret) {
		t.Error("a session outlives the password")
	}
	if _, err := d.SetPasswordByLink(t.Context(), secret, "yet another password", somewhere()); !errors.Is(err, ErrLink) {
		t.Errorf("a link is used twice: %v", err)
	}
	if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("the old password: %v", err)
	}
	late := link(people.SignIn)
	d.exec(`UPDATE links SET ends_at = now() WHERE used_at IS NULL`)
	if _, err := d.SignInByLink(t.Context(), late, somewhere()); !errors.Is(err, ErrLink) {
		t.Errorf("a link that has expired: %v", err)
	}
	if s, err := d.SignInByLink(t.Context(), link(people.SignIn), somewhere()); err != nil || s.Level != people.LevelFull {
		t.Errorf("a link to sign in: %+v, %v", s, err)
	}
	d.exec(`UPDATE users SET deactivated_at = now() WHERE id = $1`, p.ID)
	if link, err := d.people.MakeLink(t.Context(), p.ID, people.Invite); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("a link for a person who was deactivated: %q, %v", link, err)
	}
}

// What a person is changed to ends what was begun before.
func TestChangesOfAPersonEndSessions(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.person("staff@archive.org", registry.RoleAdmin, "")
	d.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Other', 'other.edu', 'a', 'b')`)
	for what, sql := range map[string]string{
		"deactivation": `UPDATE users SET deactivated_at = now() WHERE id = $1`,
		"role":         `UPDATE users SET role = 'institutional_admin' WHERE id = $1`,
		"institution":  `UPDATE users SET institution_id = (SELECT id FROM institutions WHERE identifier = 'other.edu') WHERE id = $1`,
		"email":        `UPDATE users SET email = 'x' || email WHERE id = $1`,
	} {
		p := d.person(what+"@test.edu", registry.RoleInstitutionalUser, "test.edu")
		s := d.enter(p)
		d.exec(`INSERT INTO api_tokens (name, digest, rights, user_id, permissions) VALUES ('t', sha256($2::text::bytea), '{}', $1, '{items.read}')`, p.ID, what)
		d.exec(sql, p.ID)
		if !d.ended(s.Secret) {
			t.Errorf("%s: the session goes on", what)
		}
		if n := d.count(`SELECT count(*) FROM api_tokens WHERE user_id = $1`, p.ID); (n == 0) != (what != "email") {
			t.Errorf("%s: %d tokens", what, n)
		}
	}
	for _, sql := range []string{`UPDATE users SET deactivated_at = now() WHERE role = 'admin'`, `UPDATE users SET role = 'operator' WHERE role = 'admin'`} {
		if _, err := d.db.Exec(t.Context(), sql); !errors.Is(registry.Refusal(err), registry.ErrRefused) {
			t.Errorf("of the last admin, %s: %v", sql, err)
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	for what, sql := range map[string]string{
		"idle for an hour": `UPDATE sessions SET seen_at = now() - interval '61 minutes'`, "after 12 hours": `UPDATE sessions SET ends_at = now()`,
	} {
		s := d.enter(p)
		d.exec(sql)
		if !d.ended(s.Secret) {
			t.Errorf("%s the session goes on", what)
		}
	}
	s := d.enter(p)
	other := d.person("bob@test.edu", registry.RoleInstitutionalUser, "test.edu")
	if _, err := d.people.EndSession(t.Context(), other.ID, d.session(s.Secret).ID); !errors.Is(err, registry.ErrNotFound) || d.ended(s.Secret) {
		t.Errorf("a session of another was ended: %v", err)
	}
	if n := d.count(`SELECT count(*) FROM sessions WHERE digest = $1::bytea`, []byte(s.Secret)); n != 0 {
		t.Error("the secret itself is stored")
	}
	next, err := d.ChangePassword(t.Context(), d.session(s.Secret), good, "another long password", somewhere())
	if err != nil || !d.ended(s.Secret) || d.session(next.Secret).Level != people.LevelFull {
		t.Errorf("a new password: %+v, %v", next, err)
	}
	if _, err := d.ChangePassword(t.Context(), d.session(next.Secret), good, "yet another password", somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("a new password without the old one: %v", err)
	}
}

func TestPasswordsThatOthersTryFirst(t *testing.T) {
	t.Parallel()
	for _, weak := range []string{
		"", "short", "eleven char", "password1234", "Password!!!!", "1234567890123", "qwertyuiop12", "passwordpassword", "aaaaaaaaaaaa", "abababababab",
		"ann.lee is my name", "987654321098", "1q2w3e4r5t6y", strings.Repeat("a1b2c3d4", 17), "twelve chars\xff",
	} {
		if err := CheckPassword(weak, "Ann.Lee@test.edu"); !errors.Is(err, ErrWeak) {
			t.Errorf("%q: %v", weak, err)
		}
	}
	for _, fine := range []string{good, "Schöner Götterfunken", "zwölf zeichn", "8472 1139 5526 0", strings.Repeat("长", 100) + "短"} {
		if err := CheckPassword(fine, "ann.lee@test.edu"); err != nil {
			t.Errorf("%q: %v", fine, err)
		}
	}
}

// Parameters of stored hashes may be older than today's; the next sign-in renews them.
func TestOldHashesAreRenewed(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	before := d.enter(p)
	d.hasher = newHasher(parameters{memory: 128, passes: 2, lanes: 1})
	d.enter(p)
	if got := d.again(p.ID).PasswordHash; !strings.Contains(got, "$m=128,t=2,p=1$") {
		t.Errorf("stored: %s", got)
	}
	if d.ended(before.Secret) {
		t.Error("a new hash of the same password has ended a session")
	}
	for _, spoilt := range []string{"x", "$2a$10$abcdefghijklmnopqrstuv", "$argon2id$v=19$m=99999999,t=1,p=1$AAAA$AAAA", "$argon2id$v=19$m=64,t=0,p=1$AAAA$AAAA"} {
		d.exec(`UPDATE users SET password_hash = $1`, spoilt)
		if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); err == nil {
			t.Errorf("a password fits %q", spoilt)
		}
	}
}

// People of the registry before this one keep their passwords; its hashes go when they sign in.
func TestImportedHashesAreReplaced(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	imported := must.Get(bcrypt.GenerateFromPassword([]byte(good), bcrypt.MinCost))(t)
	d.exec(`UPDATE users SET password_hash = $1`, strings.Replace(string(imported), "$2a$", "$2y$", 1))
	if _, err := d.SignIn(t.Context(), p.Email, good+"x", somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("a wrong password: %v", err)
	}
	if got := d.again(p.ID).PasswordHash; !strings.HasPrefix(got, "$2y$") {
		t.Errorf("after a wrong password %s is stored", got)
	}
	for range 2 {
		if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); err != nil {
			t.Error(err)
		}
		if got := d.again(p.ID).PasswordHash; !strings.HasPrefix(got, "$argon2id$") {
			t.Errorf("stored: %s", got)
		}
	}
	d.exec(`UPDATE users SET password_hash = '$2a$31' || substr($1, 7)`, string(imported))
	if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); err == nil || errors.Is(err, ErrWrong) {
		t.Errorf("a hash that takes days: %v", err)
	}
}

func TestKeysCanBeReplaced(t *testing.T) {
	t.Parallel()
	first, second := NewKey(), NewKey()
	parse := func(text string) *Keys {
		t.Helper()
		k := must.Get(ParseKeys(text))(t)
		return k
	}
	one, other := parse(first), parse(second)
	sealed, err := one.Seal("totp", "user 1", []byte("secret"))
	if err != nil || strings.Contains(string(sealed), "secret") {
		t.Fatal(err)
	}
	if got, err := parse(second+", "+first).Open("totp", "user 1", sealed); err != nil || string(got) != "secret" {
		t.Errorf("with the key before: %q, %v", got, err)
	}
	for what, open := range map[string]func() ([]byte, error){
		"another key":     func() ([]byte, error) { return other.Open("totp", "user 1", sealed) },
		"another user":    func() ([]byte, error) { return one.Open("totp", "user 2", sealed) },
		"another purpose": func() ([]byte, error) { return one.Open("device", "user 1", sealed) },
		"a part of it":    func() ([]byte, error) { return one.Open("totp", "user 1", sealed[:10]) },
		"nothing":         func() ([]byte, error) { return one.Open("totp", "user 1", nil) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s opens it: %q", what, got)
		}
	}
	for _, wrong := range []string{"", "x", "c2hvcnQ=", first + "," + second + "," + first} {
		if _, err := ParseKeys(wrong); err == nil {
			t.Errorf("%q is a key", wrong)
		}
	}
}

// A key in a file is replaced by the new one and the old one: what was sealed before opens, and from then on
// the new one seals. A setting that is no key changes nothing.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	first, second := NewKey(), NewKey()
	setting := first
	keys := must.Get(KeysOf(func() string { return setting }))(t)
	opens := func(k *Keys, sealed string) bool {
		_, err := k.OpenText("purpose", "owner", sealed)
		return err == nil
	}
	seal := func() string { return must.Get(keys.SealText("purpose", "owner", []byte("text")))(t) }
	before := seal()
	for _, setting = range []string{second + "," + first, "which is being written"} {
		if !opens(keys, before) {
			t.Errorf("with %q, what was sealed before does not open", setting)
		}
		if !opens(must.Get(ParseKeys(second))(t), seal()) {
			t.Errorf("with %q, the new key does not seal", setting)
		}
	}
	if _, err := KeysOf(func() string { return "none" }); err == nil {
		t.Error("no key is taken at the start")
	}
}
