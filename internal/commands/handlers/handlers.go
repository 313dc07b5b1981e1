// Package handlers puts together the REST API as the settings of this process have it. A server
// answers people with it, and a command that has the registry's URL answers itself.
package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/restore"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// house is what the handlers need that is in several of their parts.
type house struct {
	*connect.Services

	config settings.API
	log    *slog.Logger
}

// Part is what some operations need, and others have no time to wait for.
type Part int

// The parts.
const (
	Items    Part = 1 << iota // how far items are, in Redis and the staging bucket
	Deposits                  // the receiving buckets
	Mirror                    // nsqd
	All      = Items | Deposits | Mirror
)

// Of returns the handlers of operations on an open registry, without who may ask and how they
// sign in, and with some parts. What the settings do not name, such as Redis, is not there, and
// operations that need it say so.
func Of(ctx context.Context, s *connect.Services, config settings.API, log *slog.Logger, parts Part) *api.API {
	h := &house{s, config, log}
	a := &api.API{
		Registry: s.Registry, Version: build.This().Version, Log: log, PlanAlone: int64(config.Web.PlanAlone),
		ArchiveClass: func(option string, fromArchive bool) string {
			return restore.ArchiveClass(option, config.Classes.ClassOf, fromArchive)
		},
		Fixity: api.Fixity{Days: config.Fixity.Days, Tries: config.Fixity.Attempts},
		Next:   func(ctx context.Context, given []string, n int) ([]int64, error) { return Next(ctx, s.DB, given, n) },
	}
	if parts&Items != 0 {
		a.Interim = h.interim(ctx)
	}
	if parts&Deposits != 0 {
		a.Deposits = h.deposits(ctx)
	}
	if parts&Mirror != 0 {
		a.Mirror = h.mirror()
	}
	return a
}

// mostPools is how many pools a request may name.
const mostPools = 20

// Next lists the items that pools would claim now, up to n of each, pool after pool. Without
// any, the pools are those of a worker.
func Next(ctx context.Context, db *pgxpool.Pool, given []string, n int) (ids []int64, err error) {
	pools := settings.DefaultPools()
	if len(given) > 0 {
		pools, err = settings.ParsePools(strings.Join(given, "\n"))
	}
	if err == nil && len(pools) > mostPools {
		err = fmt.Errorf("%d pools are named; name %d at most", len(pools), mostPools)
	}
	if err != nil {
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "pool: "+err.Error())
	}
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	var held []claim.Scope
	for _, h := range engine.ServiceHolds() {
		if h.Held {
			held = append(held, h.Scopes...)
		}
	}
	for _, p := range pools {
		for _, f := range p.Filters(steps.All(pipeline.Deps{}), n) {
			f.Without = held
			found, err := engine.Peek(ctx, f, n)
			if err != nil {
				return nil, err
			}
			ids = append(ids, found...)
		}
	}
	return ids, nil
}
