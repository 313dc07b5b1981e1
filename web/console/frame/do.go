package frame

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/reply"
)

// Fields of a form that are for the console itself.
const (
	fieldBack = "back"  // where to go when it is done; {id} is the new record's
	fieldUndo = "undo"  // operation that undoes it, with its own fields as undo.NAME
	fieldSaid = "said"  // about what, in the sentence that says that it is done
	fieldNew  = "proof" // a fresh proof of who the person is
)

// MostForm is how large a form may be: as large as the largest body of an operation.
const MostForm = 16 << 20

// do has an operation carry out what a form asks for.
func (p *Frame) do(w http.ResponseWriter, r *http.Request) {
	v, form, ok := p.form(w, r)
	if !ok {
		return
	}
	p.carryOut(v, form)
}

// form reads the form of a person who has signed in.
func (p *Frame) form(w http.ResponseWriter, r *http.Request) (*Visit, url.Values, bool) {
	v, ok := p.visit(w, r)
	if !ok {
		return nil, nil, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, MostForm)
	if err := r.ParseForm(); err != nil {
		p.Problem(v, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "the form could not be read; go back and send it again"))
		return nil, nil, false
	}
	return v, r.PostForm, true
}

func (p *Frame) carryOut(v *Visit, form url.Values) {
	id := v.PathValue("operation")
	o, found := p.Table.Operation(id)
	if !found {
		p.Problem(v, ops.NotFound())
		return
	}
	q, err := p.Table.FromForm(id, form)
	var answer ops.Answer
	if err == nil {
		answer, err = p.Table.Ask(v.Request, v.Caller, q)
	}
	if err != nil {
		p.refused(v, o, form, err)
		return
	}
	for _, line := range answer.Header.Values("Set-Cookie") {
		v.Writer.Header().Add("Set-Cookie", line)
	}
	if lines := p.secrets(v, answer); o.Secret && len(lines) > 0 {
		v.Title = "Done: " + words.Lower(o.Summary)
		v.Header.Del("Accept-Encoding") // its size says nothing of it
		p.Show(v, http.StatusOK, "secret.html", map[string]any{"Lines": lines, "Back": back(form, answer)})
		return
	}
	p.setDone(v, o, form)
	http.Redirect(v.Writer, v.Request, back(form, answer), http.StatusSeeOther) //nolint:gosec // to a path of this server: access.Local
}

// back is where a form leads when it is done. It is of this server. Where there is no new
// record, it leads to the list.
func back(form url.Values, answer ops.Answer) string {
	to := form.Get(fieldBack)
	var made struct {
		ID   json.Number `json:"id"`
		Item struct {
			ID json.Number `json:"id"`
		} `json:"item"`
	}
	if json.Unmarshal(answer.Body, &made) == nil {
		to = strings.ReplaceAll(to, "{id}", url.PathEscape(cmp.Or(made.ID, made.Item.ID).String()))
	}
	to = strings.TrimSuffix(to, "/{id}")
	if !access.Local(to) {
		return "/"
	}
	return to
}

// refused shows what was not done, why, and the form as it was sent: nothing that was typed
// is lost.
func (p *Frame) refused(v *Visit, o ops.Operation, form url.Values, err error) {
	var found *reply.Problem
	if !errors.As(err, &found) {
		p.log.WarnContext(v.Context(), "cannot carry out what a form asks for; the person is asked to send it again", "operation", o.ID, "err", err)
		found = ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, "Farol cannot answer now; send the form again in a moment")
	}
	unsure := found.Status >= http.StatusInternalServerError || found.RetryAfter != "" // sent again with its key, it is carried out at most once
	lost := found.Code == ops.CodeAnswerLost                                           // with its key, it is not carried out again
	if form.Has(ops.FormKey) && !unsure && !lost {                                     // else this refusal would be its answer for good
		form.Set(ops.FormKey, newKey())
	}
	v.Title = "Not done: " + words.Lower(o.Summary)
	data := map[string]any{
		"Detail": words.Sentence(found.Detail), "Next": words.AdviceOn(found), "Code": found.Code, "Operation": o.ID, "Fields": fieldsOf(form), "Back": back(form, ops.Answer{}),
		"Unsure": unsure && found.Status != http.StatusTooManyRequests, "Lost": lost,
	}
	file := "refused.html"
	switch found.Code {
	case ops.CodeAnswerLost:
		v.Title = "Done, but its answer was lost: " + words.Lower(o.Summary)
	case ops.CodeFreshProof:
		v.Title, file = "Prove once more who you are", "proof.html"
		data["Providers"] = p.API.Providers.Buttons()
		data["Strong"] = v.Caller.Person.Strong()
		data["Summary"] = words.Lower(o.Summary)
	}
	p.Show(v, found.Status, file, data)
}

// field is a field of a form that is shown again.
type field struct {
	Name, Value string
	Hidden      bool // it is for programs
	Long        bool
	Password    bool // it is typed again
}

// fieldsOf are the fields of a form in the order of their names, those that a person fills in
// first.
func fieldsOf(form url.Values) (list []field) {
	for _, name := range slices.Sorted(maps.Keys(form)) {
		hidden := slices.Contains([]string{fieldBack, fieldUndo, fieldSaid, fieldNew, ops.FormIfMatch, ops.FormKey, "id", "pending"}, name) || strings.HasPrefix(name, fieldUndo+".")
		if name == fieldNew {
			continue
		}
		if name == "old" || name == "new" || name == "code" {
			list = append(list, field{Name: name, Password: true})
			continue
		}
		for _, text := range form[name] {
			list = append(list, field{Name: name, Value: text, Hidden: hidden, Long: strings.Contains(text, "\n") || len(text) > 80})
		}
	}
	return list
}

// prove takes a fresh proof of who the person is, and sends the form that needs it again.
func (p *Frame) prove(w http.ResponseWriter, r *http.Request) {
	v, form, ok := p.form(w, r)
	if !ok {
		return
	}
	from := auth.From{IP: p.Web.IP(r), Agent: r.UserAgent(), Device: p.Web.Device(r), Session: v.Caller.Session}
	s, err := p.auth.Prove(r.Context(), v.Caller.Session, form.Get(fieldNew), from)
	if err != nil {
		o, _ := p.Table.Operation(r.PathValue("operation"))
		var tooMany *auth.TooMany
		detail := "Farol cannot answer now; try again in a moment"
		if errors.Is(err, auth.ErrWrong) || errors.Is(err, auth.ErrBusy) || errors.As(err, &tooMany) {
			detail = err.Error()
		}
		p.refused(v, o, form, ops.Problem(http.StatusForbidden, ops.CodeFreshProof, detail))
		return
	}
	http.SetCookie(w, p.Web.Cookie(s.Secret))
	http.Redirect(w, r, "/do/"+url.PathEscape(r.PathValue("operation")), http.StatusTemporaryRedirect) // with the form
}

// secretLine is what cannot be shown again, by its name.
type secretLine struct{ Name, Value string }

// secrets are what an answer has that cannot be shown again: a token, recovery codes, or a link
// with which a person sets a password.
func (p *Frame) secrets(v *Visit, answer ops.Answer) (lines []secretLine) {
	var found struct {
		Name  string   `json:"name"`
		Token string   `json:"token"`
		Codes []string `json:"recovery_codes"`
		Path  string   `json:"path"`
	}
	if json.Unmarshal(answer.Body, &found) != nil {
		return nil
	}
	if found.Token != "" {
		lines = append(lines, secretLine{"name", found.Name}, secretLine{"token", found.Token})
	}
	for _, code := range found.Codes {
		lines = append(lines, secretLine{"recovery code", code})
	}
	if found.Path != "" {
		scheme := "http://"
		if p.Web.Secure {
			scheme = "https://"
		}
		lines = append(lines, secretLine{"link", scheme + v.Host + found.Path})
	}
	return lines
}

// done is what a person has just done, for the page that is shown next.
type done struct {
	Summary string            `json:"s"`
	Undo    string            `json:"u"` // operation that undoes it; "": none does
	Fields  map[string]string `json:"f"` // of the form for it
	Back    string            `json:"b"`
}

// doneCookie has what was just done, until the next page.
const doneCookie = "farol-done"

func (p *Frame) setDone(v *Visit, o ops.Operation, form url.Values) {
	d := done{Summary: words.Lower(o.Summary), Undo: form.Get(fieldUndo), Fields: map[string]string{}, Back: form.Get(fieldBack)}
	if said := form.Get(fieldSaid); said != "" {
		d.Summary += ": " + said
	}
	for name := range form {
		if of, undoes := strings.CutPrefix(name, fieldUndo+"."); undoes && d.Undo != "" {
			d.Fields[of] = form.Get(name)
		}
	}
	text, err := json.Marshal(d)
	if err != nil || len(text) > 2000 {
		return
	}
	http.SetCookie(v.Writer, p.brief(doneCookie, base64.RawURLEncoding.EncodeToString(text), time.Minute))
}

// brief is a cookie without a secret.
func (p *Frame) brief(name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure wherever browsers come by TLS; on loopback they would not send it
		Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: p.Web.Secure, SameSite: http.SameSiteLaxMode,
	}
}

// takeDone is what was just done, once.
func (p *Frame) takeDone(v *Visit) *done {
	c, err := v.Cookie(doneCookie)
	if err != nil || v.Method != http.MethodGet || v.Header.Get("X-Refresh") != "" {
		return nil
	}
	http.SetCookie(v.Writer, p.brief(doneCookie, "", -time.Second))
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	var d done
	if err != nil || json.Unmarshal(text, &d) != nil {
		return nil
	}
	return &d
}

// newKey is an Idempotency-Key for a form, so that one that is sent twice is carried out once.
func newKey() string { return "form-" + rand.Text() }
