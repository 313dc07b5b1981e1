package main

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// requestExperiments have people ask for restorations and deletions while something fails.
func requestExperiments() []experiment {
	preservation := func(s *site) []string {
		return []string{s.Bucket("standard-va"), s.Bucket("standard-or"), s.Bucket("wasabi-or"), s.Bucket("wasabi-va")}
	}
	return []experiment{
		trial("restorations", "30 objects are asked for; S3 answers 403 for 10 s, and then Redis refuses connections for 20 s", "all are restored, bit for bit", 0,
			restorations(30,
				hold(10*time.Second, onS3(all, always(refusal(http.StatusForbidden, "AccessDenied", "Access Denied")))),
				hold(20*time.Second, refused(all, toRedis)))),
		trial("restorations-flipped", "30 objects are asked for; one byte is flipped in the first answer for each object of the preservation buckets", "all are restored, bit for bit", 0,
			during(restorations(30, ended), onS3(all, func(s *site) *rule {
				return flipByte().when(isRead).firstOnly().in(preservation(s)...)
			}))),
		trial("restorations-decayed", "30 objects are asked for; the store flips one byte of each on its disk in staging, and one in the restoration bucket, and says the same of them as before", "all are restored, bit for bit", 0,
			during(restorations(30, ended), onS3(all, (*site).decay))),
		trial("deletions", "two people delete 24 objects; every other deletion is cancelled at a random moment, S3 answers 503 to 40 % of the removals, and a random worker is killed every 3 s", "what was deleted is gone, with receipts; all else is kept, or known to be missing, and is restored", 0,
			deletions(24, onS3(all, func(s *site) *rule {
				return refusal(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.").
					when(isRemoval).in(preservation(s)...).some(0.4)
			}), repeated("kill", 3*time.Second, func(_ context.Context, s *site) error {
				s.workers[s.rng.IntN(len(s.workers))].Signal(syscall.SIGKILL)
				return nil
			}))).spends(),
	}
}

// restorations asks for some objects once all bags are ingested, and then takes some
// steps.
func restorations(n int, steps ...step) step {
	return func(ctx context.Context, s *site) error {
		if err := ended(ctx, s); err != nil {
			return err
		}
		for _, b := range s.Valid(n) {
			if _, err := s.Farol(ctx, s.Env(), "restore", "object", b.Object()); err != nil {
				return err
			}
		}
		return inTurn(steps...)(ctx, s)
	}
}

// deletions has two people delete some objects while something fails, and takes back every
// other deletion. Then all objects are asked for of which something is left.
func deletions(n int, faults ...fault) step {
	return func(ctx context.Context, s *site) error {
		if err := inTurn(ended, people)(ctx, s); err != nil {
			return err
		}
		chosen := s.Valid(n)
		err := during(inTurn(func(ctx context.Context, s *site) error {
			for i, b := range chosen {
				if err := s.delete(ctx, b, i%2 == 0); err != nil {
					return err
				}
			}
			return nil
		}, pause(5*time.Second)), faults...)(ctx, s)
		if err != nil {
			return err
		}
		if err := ended(ctx, s); err != nil {
			return err
		}
		restored := 0
		for _, b := range chosen {
			var left bool
			if err := s.DB.QueryRow(ctx, `SELECT state = 'A' FROM intellectual_objects WHERE identifier = $1`, b.Object()).Scan(&left); err != nil {
				return fmt.Errorf("look for %s: %w", b.Object(), err)
			}
			if !left {
				continue
			}
			restored++
			if _, err := s.Farol(ctx, s.Env(), "restore", "object", b.Object()); err != nil {
				return err
			}
		}
		s.note("%d objects deleted, %d left and restored", len(chosen)-restored, restored)
		return nil
	}
}

// people are two for each institution, who may delete.
func people(ctx context.Context, s *site) error {
	return s.AddPeople(ctx) //nolint:wrapcheck // it says what it could not do
}

// delete has two people delete an object, and one of them cancel it soon after.
func (s *site) delete(ctx context.Context, b oracle.Bag, cancelled bool) error {
	request, err := s.Delete(ctx, b)
	if err != nil || !cancelled {
		return err //nolint:wrapcheck // it says what it could not do
	}
	if err := sleep(ctx, time.Duration(s.rng.Int64N(int64(400*time.Millisecond)))); err != nil {
		return err
	}
	return s.Exec(ctx, `SELECT cancel(id, 'a mistake') FROM (SELECT id FROM work_items WHERE deletion_request_id = $1 AND retry FOR UPDATE) w`, request)
}
