package main

import (
	"context"
	"errors"

	"github.com/farol-preservation/farol/chaos/rig"
)

// servers are what all experiments share. Each experiment has a database and buckets of
// its own in them.
type servers struct {
	*rig.Servers

	store rig.Store      // the gateway
	ca    *rig.Authority // of the S3 proxies
}

// startServers builds farol and starts the servers in dir.
func startServers(ctx context.Context, dir string) (_ *servers, err error) {
	build, err := rig.NewBuild(ctx, dir)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was building
	}
	inner, err := rig.Start(ctx, dir, build, "")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was starting
	}
	s := &servers{Servers: inner, store: rig.Store{Gateway: inner.Gateway()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}()
	if err := s.store.Connect(); err != nil {
		return nil, err //nolint:wrapcheck // it says what it could not read
	}
	s.ca, err = rig.NewAuthority(dir)
	return s, err //nolint:wrapcheck // it says what it could not make
}
