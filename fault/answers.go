package fault

import (
	"context"
	"slices"
	"sync"
)

// Answers are the services, by the names that an [Error] has, which have done something for a piece of
// work. That the work ended well says nothing of a service that it could have used and did not. The
// zero value has none. Its methods may be called at the same time as any other.
type Answers struct {
	mu       sync.Mutex
	services []string
}

type answersKey struct{}

// WithAnswers returns a context under which [Answered] adds services to a.
func WithAnswers(ctx context.Context, a *Answers) context.Context {
	return context.WithValue(ctx, answersKey{}, a)
}

// Answered notes that a service has done what was asked of it. Packages that speak to services call it.
func Answered(ctx context.Context, service string) {
	if a, ok := ctx.Value(answersKey{}).(*Answers); ok {
		a.Note(service)
	}
}

// Note adds a service.
func (a *Answers) Note(service string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.services, service) {
		a.services = append(a.services, service)
	}
}

// Has reports whether a service is among them.
func (a *Answers) Has(service string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.services, service)
}
