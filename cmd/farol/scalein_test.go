package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A worker on ECS has its task spared as soon as it has items in progress, and no more when it has ended.
func TestWorkerTakesTaskProtection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var heard []string
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		busy := strings.Contains(string(body), "true")
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r.URL.Path+" "+map[bool]string{true: "on", false: "off"}[busy])
		_, _ = io.WriteString(w, `{"protection": {"ProtectionEnabled": `+map[bool]string{true: "true", false: "false"}[busy]+`}}`)
	}))
	t.Cleanup(agent.Close)
	told := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(heard, ", ")
	}
	s := newSite(t)
	s.settings["ECS_AGENT_URI"] = agent.URL + "/api/a"
	s.deposit(sampleBag("sample"))
	release := s.holdEnd("Validate")
	w := s.worker()
	const on = "/api/a/task-protection/v1/state on"
	w.eventually("the task to be protected", func() bool { return told() == on })
	release()
	s.atRest(w)
	stop(t, w)
	if got := told(); got != on+", /api/a/task-protection/v1/state off" {
		t.Errorf("the agent was told %s", got)
	}
}
