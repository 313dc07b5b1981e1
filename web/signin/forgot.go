package signin

import "net/http"

// mailOnItsWay is shown whether or not a person has the address.
const mailOnItsWay = "If an account has this e-mail address, a mail with a link to set a new password is on its way. The link is good for an hour. " +
	"If no mail comes, ask an administrator of your institution, or the archive's staff."

func (p *Pages) forgot(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	v := page{Title: "Forgot your password?"}
	if err := p.Auth.Forgot(r.Context(), r.PostForm.Get("email"), p.from(r)); err != nil {
		p.refused(w, r, "forgot.html", v, err)
		return
	}
	v.Note = mailOnItsWay
	p.show(w, r, http.StatusOK, "forgot.html", v)
}
