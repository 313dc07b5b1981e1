package handlers

import (
	"context"

	"github.com/farol-preservation/farol/nsqcompat"
	"github.com/farol-preservation/farol/record"
)

// mirror compares the queue with what nsqd shows of it; nil: nsqd's address is not known.
func (h *house) mirror() func(context.Context) (record.MirrorView, error) {
	at := h.config.NSQ
	if at.HTTPAddr == "" && at.LookupdAddr == "" {
		return nil
	}
	m := nsqcompat.NewMirror(h.DB, nsqcompat.MirrorOptions{NSQDHTTPAddr: at.HTTPAddr, LookupdAddr: at.LookupdAddr, FixityDays: h.config.Fixity.Days, Log: h.log})
	return func(ctx context.Context) (record.MirrorView, error) {
		s, err := m.Status(ctx)
		if err != nil && len(s.Topics) == 0 {
			h.log.DebugContext(ctx, "nsqd's figures are not known", "err", err)
			return record.MirrorView{Admin: h.config.Web.NSQAdmin, Topics: []record.MirrorTopic{}, Note: "nsqd does not answer. The pipeline does not need it: the mirror catches up when it is back."}, nil
		}
		view := mirrorView(s, err == nil)
		view.Admin = h.config.Web.NSQAdmin
		return view, nil
	}
}

// mirrorView are the figures of the registry and of nsqd. Since when a process mirrors is known
// to those database users only who may see the sessions of others.
func mirrorView(s nsqcompat.Status, leader bool) record.MirrorView {
	view := record.MirrorView{Known: true, NSQD: s.NSQD, Behind: s.Behind, Oldest: s.Oldest.Seconds(), Moved: s.Moved, Topics: []record.MirrorTopic{}}
	if leader {
		runs := s.Leader != nil
		view.Running = &runs
		if runs {
			view.Since = s.Leader.Since
		}
	}
	for _, t := range s.Topics {
		view.Topics = append(view.Topics, record.MirrorTopic{
			Topic: t.Topic, Due: t.Claimable, Running: t.Running, Later: t.Later, Depth: t.Depth, InFlight: t.InFlight, Deferred: t.Deferred,
			Drift: t.Drift, PausedInFarol: t.PausedInFarol, PausedInNSQ: t.PausedInNSQ,
		})
	}
	return view
}
