package pull

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// Routes adds the API's routes to mux.
func (a *API) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /post", a.allowed("post", a.post))
	mux.HandleFunc("POST /pull", a.allowed("pull", a.pull))
	mux.HandleFunc("GET /queues", a.allowed("post or pull", a.showQueues))
	mux.HandleFunc("GET /queues/{queue}", a.allowed("post or pull", a.showQueue))
	mux.HandleFunc("GET /queues/{queue}/messages/{id}", a.allowed("post or pull", a.showMessage))
	mux.HandleFunc("PUT /queues/{queue}/receivers/{name}", a.allowed("pull", a.setPosition))
}

// post is POST /post.
func (a *API) post(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	body, release, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer release()
	p, err := readPost(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	firsts, err := a.broker.post(ctx, p)
	if err != nil {
		return err
	}
	ids := make(map[string][]int64, len(p.postings))
	for i, posting := range p.postings {
		for n := range posting.Messages {
			ids[posting.Queue] = append(ids[posting.Queue], firsts[i]+int64(n))
		}
	}
	answer(w, ids)
	return nil
}

// pull is POST /pull. Its request is in memory until its results are saved, and not
// while it waits.
func (a *API) pull(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	body, release, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer release()
	p, err := readPull(body, a.o.Defaults)
	if err != nil {
		return err
	}
	if len(p.refused) > 0 {
		return a.saveSome(r.Context(), p)
	}
	brought := broughtResults{p.results, release}
	p.results = nil
	type messages struct {
		Messages map[string][]message `json:"messages"`
	}
	if len(p.wants) == 0 {
		if err := a.broker.saveAll(r.Context(), p.receiver, brought.results); err != nil {
			return err
		}
		answer(w, messages{map[string][]message{}})
		return nil
	}
	ctx, end := a.untilStop(r.Context())
	defer end()
	given, err := a.broker.pull(ctx, p.receiver, brought, p.wants, p.timeout)
	if err != nil && !errors.Is(err, errStopping) {
		return err
	}
	got := map[string][]message{}
	for i, list := range given {
		if len(list) > 0 {
			got[p.wants[i].Queue] = list
		}
	}
	if len(got) == 0 {
		reply.NoContent(w)
		return nil
	}
	answer(w, messages{got})
	return nil
}

// saveSome saves the results of a request that has others, which cannot be saved. Its
// caller has to learn of those, and so is given no messages.
func (a *API) saveSome(ctx context.Context, p pullRequest) error {
	saved, err := a.broker.saveResults(ctx, p.receiver, p.results)
	if err != nil {
		return err
	}
	if unknown := allSaved(p.receiver, saved, p.results); unknown != nil {
		p.refused = append(p.refused, unknown.Error())
	}
	return request.Errorf("%d results are saved; these are not: %s", saved, strings.Join(p.refused, "; "))
}
