package console

import (
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/api/accounts"
)

// accountSheets are the pages on which people look after their own account. All people who
// have signed in have them.
func accountSheets() []sheet {
	return []sheet{
		{Path: "/account", Title: "Account", File: "account.html", Nav: "You", Load: (*Pages).account},
		{Path: "/account/mail", Title: "Mail", File: "mail.html", Shell: "farol user mail {email}", Load: (*Pages).mail},
	}
}

// accountPage is the own account.
type accountPage struct {
	Me       accounts.MeView
	Issuer   string // OpenID provider that the person is linked to; "": none
	Password bool   // one is set
	Sessions []record.SessionRow
	Tokens   []record.TokenView
	Schemes  []choice
	Proofs   any // providers that give a fresh proof
}

func (p *Pages) account(v *visit) (any, error) {
	d := accountPage{Issuer: v.Caller.Person.Issuer, Password: v.Caller.Person.PasswordHash != "", Proofs: p.api.Providers.Buttons()}
	var err error
	if d.Me, err = get[accounts.MeView](v, "me", nil); err != nil {
		return nil, err
	}
	sessions, err := get[listOf[record.SessionRow]](v, "me/sessions", nil)
	if err != nil {
		return nil, err
	}
	tokens, err := get[listOf[record.TokenView]](v, "me/tokens", nil)
	d.Sessions, d.Tokens = sessions.Items, tokens.Items
	for _, s := range []choice{{"system", "As the system", d.Me.Scheme == ""}, {"light", "Light", false}, {"dark", "Dark", false}} {
		s.Chosen = s.Chosen || s.Value == d.Me.Scheme
		d.Schemes = append(d.Schemes, s)
	}
	return d, err
}

// choice is a value that can be chosen.
type choice struct {
	Value, Name string
	Chosen      bool
}

// choices are values that are their own names.
func choices(chosen string, values ...string) (list []choice) {
	for _, value := range values {
		list = append(list, choice{value, value, value == chosen})
	}
	return list
}

// mailChoice is when mail comes for a kind of alerts.
type mailChoice struct {
	Field, About string
	Times        []choice
}

func (p *Pages) mail(v *visit) (any, error) {
	s, err := get[record.MailSettings](v, "me/mail", nil)
	var list []mailChoice
	for _, k := range []struct{ field, about, value string }{
		{"deletions", "Deletions", s.Deletions},
		{"restorations", "Restorations", s.Restorations},
		{"fixity", "Fixity checks and repairs", s.Fixity},
		{"problems", "Problems with items and the archive", s.Problems},
	} {
		list = append(list, mailChoice{k.field, k.about, choices(k.value, people.MailTimes()...)})
	}
	return map[string]any{"Choices": list, "Zone": v.Caller.Person.TimeZone}, err
}
