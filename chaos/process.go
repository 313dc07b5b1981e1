package main

import "github.com/farol-preservation/farol/chaos/rig"

// A process is a farol process with its own ways to the servers, so that it alone can be
// harmed.
type process struct {
	*rig.Process

	postgres, redis *gate
	s3              *s3Proxy
}

// stop ends the process and its ways.
func (p *process) stop() {
	p.Stop()
	for _, g := range []*gate{p.postgres, p.redis} {
		if g != nil {
			g.Close() //nolint:errcheck // it only listened
		}
	}
	if p.s3 != nil {
		p.s3.stop()
	}
}
