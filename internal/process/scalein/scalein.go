// Package scalein asks the platform to spare a process that has work in progress when fewer are to run: by ECS task
// protection, or by the cost of deleting a pod of Kubernetes. What comes in is how much is in progress; what goes
// out are requests to the platform. A process whose request fails works on: it may then be stopped in the
// midst of work, which another one repeats.
package scalein

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Platform is what the environment says of the platform. Without either, there is nobody to ask.
type Platform struct {
	Agent    string // URL of the agent of ECS, from ECS_AGENT_URI
	Pod      string // name of this pod
	APIHost  string // of Kubernetes, from KUBERNETES_SERVICE_HOST
	APIPort  string // likewise
	Identity string // directory of the pod's service account; "": where Kubernetes mounts it
}

// Guard keeps the platform told. It is not safe for concurrent use.
type Guard struct {
	ask func(ctx context.Context, busy bool) error
	log *slog.Logger

	look, idle, renew, again time.Duration
}

const (
	// lasts is how long ECS protects a task without being asked again: a worker that hangs must not stay for good.
	lasts   = time.Hour
	askTime = 10 * time.Second
	// most is more than any answer has.
	most = 1 << 20
)

// New returns a guard on a platform, and nil where there is none.
func New(p Platform, log *slog.Logger) *Guard {
	g := &Guard{log: log, look: time.Second, idle: 15 * time.Second, renew: lasts / 2, again: 10 * time.Second}
	switch {
	case p.Agent != "":
		g.ask = (&ecs{url: strings.TrimRight(p.Agent, "/") + "/task-protection/v1/state", client: http.DefaultClient}).protect
	case p.Pod != "" && p.APIHost != "":
		dir := p.Identity
		if dir == "" {
			dir = "/var/run/secrets/kubernetes.io/serviceaccount"
		}
		g.ask = (&kubernetes{api: "https://" + net.JoinHostPort(p.APIHost, p.APIPort), pod: p.Pod, identity: dir}).cost
	default:
		return nil
	}
	return g
}

// Run asks for protection while there is work in progress, and a moment longer, since more may come. It ends with
// ctx, and the protection with it.
func (g *Guard) Run(ctx context.Context, inHand func() int) error {
	tick := time.NewTicker(g.look)
	defer tick.Stop()
	told, maybe := false, false // what the platform believes, and whether it may
	var last, renew, retry time.Time
	for {
		now := time.Now()
		if inHand() > 0 {
			last = now
		}
		busy := now.Sub(last) < g.idle
		if (busy != told || busy && now.After(renew)) && now.After(retry) {
			maybe = maybe || busy
			if g.tell(ctx, busy) {
				told, maybe, renew = busy, busy, now.Add(g.renew)
			} else {
				retry = now.Add(g.again)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if maybe {
				g.tell(context.WithoutCancel(ctx), false)
			}
			return nil
		}
	}
}

// tell asks the platform, and reports whether it agreed.
func (g *Guard) tell(ctx context.Context, busy bool) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := g.ask(ctx, busy); err != nil {
		g.log.WarnContext(ctx, "the platform does not know whether this process has work in progress, and may stop it in the midst of it when fewer are to run", "busy", busy, "err", err)
		return false
	}
	g.log.DebugContext(ctx, "the platform knows whether this process has work in progress", "busy", busy)
	return true
}

// ecs is the endpoint of the container agent:
// https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html
type ecs struct {
	url    string
	client *http.Client
}

func (e *ecs) protect(ctx context.Context, busy bool) error {
	body := map[string]any{"ProtectionEnabled": busy}
	if busy {
		body["ExpiresInMinutes"] = int(lasts.Minutes())
	}
	answer, err := send(ctx, e.client, http.MethodPut, e.url, "application/json", "", body)
	if err != nil {
		return fmt.Errorf("task protection: %w", err)
	}
	var said struct {
		Protection *struct{ ProtectionEnabled bool }
		Failure    struct{ Reason, Detail string }
		Error      struct{ Code, Message string }
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return fmt.Errorf("task protection: %w", err)
	}
	if said.Protection == nil || said.Protection.ProtectionEnabled != busy {
		return fmt.Errorf("task protection: %s %s %s %s: allow ecs:UpdateTaskProtection to the role of the task, or set FAROL_SCALE_IN_PROTECTION=off",
			said.Failure.Reason, said.Failure.Detail, said.Error.Code, said.Error.Message)
	}
	return nil
}

// kubernetes is the API, where a pod says what its deletion costs:
// https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost
type kubernetes struct{ api, pod, identity string }

func (k *kubernetes) cost(ctx context.Context, busy bool) error {
	err := k.patch(ctx, busy)
	if err != nil {
		return fmt.Errorf("pod-deletion cost: %w: allow the service account to patch this pod, or set FAROL_SCALE_IN_PROTECTION=off", err)
	}
	return nil
}

// patch reads who we are each time: the token is replaced every hour.
func (k *kubernetes) patch(ctx context.Context, busy bool) error {
	var parts [3]string
	for i, name := range []string{"namespace", "token", "ca.crt"} {
		text, err := os.ReadFile(filepath.Join(k.identity, name))
		if err != nil {
			return err
		}
		parts[i] = strings.TrimSpace(string(text))
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(parts[2])) {
		return errors.New("ca.crt of the service account has no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	cost := "0"
	if busy {
		cost = "1000"
	}
	body := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"controller.kubernetes.io/pod-deletion-cost": cost}}}
	_, err := send(ctx, &http.Client{Transport: transport}, http.MethodPatch, k.api+"/api/v1/namespaces/"+parts[0]+"/pods/"+k.pod, "application/merge-patch+json", parts[1], body)
	return err
}

func send(ctx context.Context, client *http.Client, method, url, contentType, token string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	said, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s", answer.Status, strings.Join(strings.Fields(string(said[:min(len(said), 300)])), " "))
	}
	return said, err
}
