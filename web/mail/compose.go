package mail

import (
	"context"
	"errors"
	"fmt"
	"html"
	netmail "net/mail"
	"strings"
	"time"
	"unicode"

	"github.com/wneessen/go-mail"

	"github.com/farol-preservation/farol/registry/outbox"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/span"
)

// page is the content of a mail; both its parts are written from it.
type page struct {
	title string
	parts []part
	foot  string
	link  string // where one changes what one gets; "": no such page
}

// part is a paragraph, or an alert of a digest.
type part struct {
	head, text string
	link       string // "": none
}

const (
	mostSubject = 160
	mostContent = 4000
)

// hiddenText stands for the content of an alert that may name files of an object whose
// access is restricted.
const hiddenText = "The details are not in this mail, since access to the object is or may be restricted."

// compose writes a mail.
func (s *Sender) compose(ctx context.Context, m outbox.Mail) (*mail.Msg, error) {
	var p page
	switch m.Kind {
	case outbox.KindAlert:
		p = s.options.alertPage(m.Alerts[0])
	case outbox.KindDigest:
		p = s.options.digestPage(m)
	case outbox.KindInvite, outbox.KindReset:
		var err error
		if p, err = s.options.linkPage(ctx, m); err != nil {
			return nil, err
		}
	case outbox.KindMoved:
		p = movedPage()
	default:
		return nil, fmt.Errorf("unknown kind of mail %q", m.Kind)
	}
	return s.options.message(m.Email, m.Name, m.MessageID, p)
}

func (o Options) alertPage(a outbox.Alert) page {
	p := page{title: subjectOf(a), foot: footOfAlerts, link: o.url("/account/mail")}
	p.parts = []part{{text: contentOf(a) + o.traceOf(a)}}
	if a.Count > 1 {
		p.parts = append(p.parts, part{text: fmt.Sprintf("There are %d of this kind so far.", a.Count)})
	}
	p.parts[len(p.parts)-1].link = o.url(fmt.Sprintf("/alerts/%d", a.ID))
	return p
}

// traceOf is a line with the trace of an alert's item.
func (o Options) traceOf(a outbox.Alert) string {
	if !o.Traces || a.Item == nil || a.Since == nil {
		return ""
	}
	return "\nTrace: " + span.TraceOf(*a.Item, *a.Since).String()
}

const footOfAlerts = "You get this mail because alerts of this kind concern your account at Farol."

func (o Options) digestPage(m outbox.Mail) page {
	p := page{title: fmt.Sprintf("%d alerts from Farol", m.Total), foot: footOfAlerts, link: o.url("/account/mail")}
	if m.Total == 1 {
		p.title = subjectOf(m.Alerts[0])
	}
	for _, a := range m.Alerts {
		p.parts = append(p.parts, part{
			head: subjectOf(a), text: a.CreatedAt.UTC().Format(time.RFC1123) + "\n" + contentOf(a) + o.traceOf(a), link: o.url(fmt.Sprintf("/alerts/%d", a.ID)),
		})
	}
	if more := m.Total - len(m.Alerts); more > 0 {
		p.parts = append(p.parts, part{text: fmt.Sprintf("%d older alerts are not listed here.", more), link: o.url("/alerts")})
	}
	return p
}

// linkPage is a mail with a link to set a password. The link is made now, and only the
// mail has it.
func (o Options) linkPage(ctx context.Context, m outbox.Mail) (page, error) {
	if o.Link == nil {
		return page{}, errors.New("this process makes no links to set a password")
	}
	if o.WebURL == "" {
		return page{}, errors.New("FAROL_WEB_URL is not set, so there is no page for a link to lead to")
	}
	secret, err := o.Link(ctx, m.Kind, m.UserID)
	if err != nil {
		return page{}, fmt.Errorf("make the link: %w", err)
	}
	p := page{title: "Set a new password for Farol", foot: "If you have not asked for it, there is nothing to do: your password has not changed."}
	text := "Use this link to set a new password. It works once."
	if m.Kind == outbox.KindInvite {
		p.title, p.foot = "Your account at Farol", "If you do not know what Farol is, ignore this mail."
		text = "An account was made for you. Use this link to set a password. It works once."
	}
	p.parts = []part{{text: text, link: o.url(people.LinkPath(m.Kind, secret))}}
	return p, nil
}

// movedPage is for the address that a person had before, and names the new one to nobody.
func movedPage() page {
	return page{
		title: "Your account at Farol has another e-mail address",
		parts: []part{{text: "Mail for your account goes to another address from now on, and no more to this one. If you have not asked for that, contact the archive's staff at once."}},
		foot:  "This mail went to the address that the account had before.",
	}
}

// url is the address of a page; "" if there are no pages.
func (o Options) url(path string) string {
	if o.WebURL == "" {
		return ""
	}
	return strings.TrimSuffix(o.WebURL, "/") + path
}

// subjectOf names no file of an object that is hidden. The subjects of items name the bag.
func subjectOf(a outbox.Alert) string {
	if a.Hidden && !strings.HasPrefix(a.Type, "Item ") {
		if a.Item != nil {
			return fmt.Sprintf("%s: item %d", a.Type, *a.Item)
		}
		return a.Type
	}
	return clean(a.Subject, mostSubject)
}

func contentOf(a outbox.Alert) string {
	if a.Hidden {
		return hiddenText
	}
	var lines []string
	for line := range strings.Lines(a.Content) {
		lines = append(lines, clean(line, mostContent))
	}
	return strings.TrimSpace(shorten(strings.Join(lines, "\n"), mostContent))
}

// clean makes one line of a text: control characters, the ends of lines among them, and
// characters that change the direction of others become spaces.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	return shorten(strings.Join(strings.Fields(text), " "), most)
}

func shorten(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// message makes a mail of a page.
func (o Options) message(email, name, id string, p page) (*mail.Msg, error) {
	from, err := netmail.ParseAddress(o.From)
	if err != nil {
		return nil, fmt.Errorf("read the address of the sender: %w", err)
	}
	to, err := netmail.ParseAddress(email)
	if err != nil || to.Address != email { // an address alone, and nothing that follows one
		return nil, fmt.Errorf("%q is no address to send mail to", clean(email, mostSubject))
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(from)
	msg.ToMailAddress(&netmail.Address{Name: clean(name, mostSubject), Address: email})
	msg.Subject(clean(p.title, mostSubject))
	msg.SetDate()
	msg.SetMessageIDWithValue(id + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	unsubscribe := "<mailto:" + from.Address + "?subject=unsubscribe>"
	if p.link != "" {
		unsubscribe = "<" + p.link + ">"
	}
	msg.SetGenHeader("List-Unsubscribe", unsubscribe)
	msg.SetBodyString(mail.TypeTextPlain, p.text())
	msg.AddAlternativeString(mail.TypeTextHTML, p.html())
	return msg, nil
}

func (p page) text() string {
	var b strings.Builder
	for _, part := range p.parts {
		if part.head != "" {
			b.WriteString("* " + part.head + "\n")
		}
		b.WriteString(part.text + "\n")
		if part.link != "" {
			b.WriteString(part.link + "\n")
		}
		b.WriteString("\n")
	}
	if p.foot != "" {
		b.WriteString("-- \n" + p.foot + "\n")
	}
	if p.link != "" {
		b.WriteString("Choose what you get: " + p.link + "\n")
	}
	return b.String()
}

func (p page) html() string {
	var b strings.Builder
	e := html.EscapeString
	b.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>` + e(p.title) + "</title></head><body>\n")
	for _, part := range p.parts {
		if part.head != "" {
			b.WriteString("<h2>" + e(part.head) + "</h2>\n")
		}
		b.WriteString("<p>" + strings.ReplaceAll(e(part.text), "\n", "<br>\n") + "</p>\n")
		if part.link != "" {
			b.WriteString(`<p><a href="` + e(part.link) + `">` + e(part.link) + "</a></p>\n")
		}
	}
	if p.foot != "" {
		b.WriteString("<hr><p>" + e(p.foot))
		if p.link != "" {
			b.WriteString(` <a href="` + e(p.link) + `">Choose what you get</a>.`)
		}
		b.WriteString("</p>\n")
	}
	b.WriteString("</body></html>\n")
	return b.String()
}
