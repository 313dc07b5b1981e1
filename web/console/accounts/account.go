// Package accounts has the pages about people: accounts, institutions, tokens, alerts, settings,
// and what was done. In comes what a person asks for; out goes what a template shows.
package accounts

import (
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/api/accounts"
	"github.com/farol-preservation/farol/web/console/frame"
)

// OwnSheets are the pages on which people look after their own account. All people who
// have signed in have them.
func OwnSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/account", Title: "Account", File: "account.html", Nav: "You", Load: loadAccount},
		{Path: "/account/mail", Title: "Mail", File: "mail.html", Shell: "farol user mail {email}", Load: loadMail},
	}
}

// accountPage is the own account.
type accountPage struct {
	Me       accounts.MeView
	Issuer   string // OpenID provider that the person is linked to; "": none
	Password bool   // one is set
	Sessions []record.SessionRow
	Tokens   []record.TokenView
	Schemes  []frame.Choice
	Proofs   any // providers that give a fresh proof
}

func loadAccount(v *frame.Visit) (any, error) {
	d := accountPage{Issuer: v.Caller.Person.Issuer, Password: v.Caller.Person.PasswordHash != "", Proofs: v.Frame.API.Providers.Buttons()}
	var err error
	if d.Me, err = frame.Get[accounts.MeView](v, "me", nil); err != nil {
		return nil, err
	}
	sessions, err := frame.Get[frame.List[record.SessionRow]](v, "me/sessions", nil)
	if err != nil {
		return nil, err
	}
	tokens, err := frame.Get[frame.List[record.TokenView]](v, "me/tokens", nil)
	d.Sessions, d.Tokens = sessions.Items, tokens.Items
	for _, s := range []frame.Choice{{Value: "system", Name: "As the system", Chosen: d.Me.Scheme == ""}, {Value: "light", Name: "Light"}, {Value: "dark", Name: "Dark"}} {
		s.Chosen = s.Chosen || s.Value == d.Me.Scheme
		d.Schemes = append(d.Schemes, s)
	}
	return d, err
}

// mailChoice is when mail comes for a kind of alerts.
type mailChoice struct {
	Field, About string
	Times        []frame.Choice
}

func loadMail(v *frame.Visit) (any, error) {
	s, err := frame.Get[record.MailSettings](v, "me/mail", nil)
	var list []mailChoice
	for _, k := range []struct{ field, about, value string }{
		{"deletions", "Deletions", s.Deletions},
		{"restorations", "Restorations", s.Restorations},
		{"fixity", "Fixity checks and repairs", s.Fixity},
		{"problems", "Problems with items and the archive", s.Problems},
	} {
		list = append(list, mailChoice{k.field, k.about, frame.Choices(k.value, people.MailTimes()...)})
	}
	return map[string]any{"Choices": list, "Zone": v.Caller.Person.TimeZone}, err
}
