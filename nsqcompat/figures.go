package nsqcompat

// TopicFigures are one topic as the registry has it and as nsqd shows it.
type TopicFigures struct {
	Topic string `json:"topic"`

	Claimable int64 `json:"claimable"` // items that are due
	Running   int64 `json:"running"`   // items, or files whose fixity is checked
	Later     int64 `json:"later"`     // items that wait for a time or for another item

	Depth    int64 `json:"depth"` // of the channel, and of the topic while that is paused
	InFlight int64 `json:"in_flight"`
	Deferred int64 `json:"deferred"`
	Requeued int64 `json:"requeued"`
	Finished int64 `json:"finished"` // by the mirror's connection

	Drift           int64 `json:"drift"` // by how much depth and in flight are off, together
	PausedInFarol   bool  `json:"paused_in_farol"`
	PausedInNSQ     bool  `json:"paused_in_nsq"`
	missing, orphan bool  // nsqd has no such channel, or nobody consumes it
}

// figuresOf puts the figures of both sides together.
func figuresOf(is counts, t topicStats) (f TopicFigures) {
	c, there := t.channel(is.Topic + channelSuffix)
	f = TopicFigures{
		Topic: is.Topic, Claimable: is.Due, Running: is.Running, Later: is.Later + is.Waiting,
		Depth: t.Depth + c.Depth, InFlight: c.InFlight, Deferred: c.Deferred, Requeued: c.Requeued,
		PausedInFarol: is.Paused, PausedInNSQ: t.Paused || c.Paused,
		missing: !there, orphan: len(c.Clients) == 0,
	}
	for _, client := range c.Clients {
		f.Finished += client.Finished
	}
	f.Drift = distance(f.Depth, f.Claimable) + distance(f.InFlight, f.Running)
	return f
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// lasting corrects a number by as much as two comparisons in a row agree on.
func lasting(before, now, number int64) (off, corrected int64) {
	switch {
	case before > 0 && now > 0:
		n := min(before, now)
		return now - n, number + n
	case before < 0 && now < 0:
		n := max(before, now)
		return now - n, number + n
	}
	return now, number
}
