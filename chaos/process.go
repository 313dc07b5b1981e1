package main

import (
	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/testenv/injure"
)

// A process is a farol process with its own ways to the servers, so that it alone can be
// harmed.
type process struct {
	*devstack.Process

	postgres, redis *injure.Proxy
	s3              *s3Proxy
}

// stop ends the process and its ways.
func (p *process) stop() {
	p.Stop()
	for _, way := range []*injure.Proxy{p.postgres, p.redis} {
		if way != nil {
			way.Close()
		}
	}
	if p.s3 != nil {
		p.s3.stop()
	}
}
