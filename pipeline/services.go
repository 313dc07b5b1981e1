package pipeline

import (
	"cmp"
	"slices"

	"github.com/farol-preservation/farol/claim"
)

// ServiceView is how this process sees a service itself or by the database.
type ServiceView struct {
	Service string
	OK      bool
	Text    string // what is wrong, without names of hosts; "" if nothing is
}

// Services lists how this process sees the services that its work needs, by name,
// and tells whether they leave it nothing that it could claim.
func (r *Runner) Services() (views []ServiceView, idle bool) {
	held := map[string]bool{}
	for _, h := range r.engine.ServiceHolds() {
		held[h.Service] = h.Held
	}
	g := r.breakers
	g.mu.Lock()
	for _, one := range g.byName {
		v := ServiceView{Service: one.service, OK: one.state == claim.ServiceOK && !held[one.service]}
		switch {
		case one.state != claim.ServiceOK:
			v.Text = string(one.state) + ": " + one.cause.Code()
		case held[one.service]:
			v.Text = "held for all workers"
		}
		views = append(views, v)
	}
	g.mu.Unlock()
	slices.SortFunc(views, func(a, b ServiceView) int { return cmp.Compare(a.Service, b.Service) })
	without := g.without(false)
	return views, !slices.ContainsFunc(r.taken(), func(s Step) bool {
		return !slices.ContainsFunc(without, func(w claim.Scope) bool {
			return len(w.StorageOptions) == 0 && len(w.Institutions) == 0 && slices.Contains(w.Steps, s.Name())
		})
	})
}
