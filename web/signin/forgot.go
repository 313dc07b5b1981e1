package signin

import "net/http"

// mailOnItsWay is shown whether or not a person has the address.
const mailOnItsWay = "If an account has this e-mail address, a mail with a link to set a new password is on its way. The link is good for an hour. " +
	"If no mail comes, ask an administrator of your institution, or the archive's staff."

func (p *Pages) forgot(w http.ResponseWriter, r *http.Request) {
	v := page{Title: "Forgot your password?"}
	err := p.Auth.Forgot(r.Context(), r.PostForm.Get("email"), p.from(r))
	if err == nil {
		v.Note = mailOnItsWay
	}
	p.judged(w, r, "forgot.html", v, err)
}
