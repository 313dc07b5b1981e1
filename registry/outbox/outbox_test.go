package outbox_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/outbox"
)

// Two senders never have the same mail, unless the lease of one has lapsed.
func TestAMailIsClaimedByOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 5 {
		h.alert("Service Held", 0) // to two people
	}
	var mu sync.Mutex
	seen := map[int64]int{}
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				list, err := h.Claim(t.Context(), 2, time.Minute)
				if err != nil {
					t.Error(err)
				}
				if len(list) == 0 {
					return
				}
				mu.Lock()
				for _, m := range list {
					seen[m.ID]++
				}
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("mail %d was claimed %d times", id, n)
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d mails were claimed, want 10", len(seen))
	}
	h.lapse()
	again := h.claim(20)
	if len(again) != 10 || again[0].Attempt != 2 {
		t.Errorf("after the lease %d mails are claimed: %+v", len(again), again)
	}
}

// The result of a sender whose lease has lapsed does not undo that of the next one.
func TestAStaleFailureChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.alert("Repair Stopped", 0)
	stale := h.claim(1)[0]
	h.lapse()
	current := h.claim(1)[0]
	must.Get(h.Failed(t.Context(), stale, "late"))(t)
	if text := value[string](h, `SELECT error FROM mail_outbox`); text != "" {
		t.Errorf("a stale sender has noted %q", text)
	}
	h.sent(current)
	must.Get(h.Failed(t.Context(), current, "after it was sent"))(t)
	if !value[bool](h, `SELECT sent_at IS NOT NULL AND error = '' FROM mail_outbox`) {
		t.Error("a mail that was sent has failed")
	}
}

// The pauses grow from a minute to six hours. After three days and enough attempts the
// mail is given up, and another admin learns of it, whose own mail makes no more of them.
func TestMailIsRetriedAndGivenUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO users (email, name, role) VALUES ('other@archive.org', 'Other', 'admin')`)
	h.exec(`UPDATE users SET deactivated_at = now() WHERE role = 'operator'`)
	h.exec(`INSERT INTO alerts (type, user_id, subject, content) SELECT 'Account Locked', id, 'Locked', 'Text' FROM users WHERE email = 'staff@archive.org'`)
	for attempt, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, 64 * time.Minute, 128 * time.Minute, 256 * time.Minute, 6 * time.Hour, 6 * time.Hour} {
		switch attempt {
		case 8: // three days alone do not end it: the scheduler may have been stopped
			h.exec(`UPDATE mail_outbox SET created_at = now() - interval '73 hours'`)
		case 9:
			h.exec(`UPDATE mail_outbox SET created_at = now() - interval '71 hours'`)
		}
		gaveUp, err := h.Failed(t.Context(), h.claim(1)[0], "450 not now")
		if pause := value[time.Duration](h, `SELECT due_at - now() FROM mail_outbox`); gaveUp || err != nil || pause > want || pause < want-5*time.Second {
			t.Fatalf("attempt %d: pause %v, given up %v, %v; want %v", attempt+1, pause, gaveUp, err, want)
		}
		h.lapse()
	}
	h.exec(`UPDATE mail_outbox SET created_at = now() - interval '73 hours'`)
	if gaveUp, err := h.Failed(t.Context(), h.claim(1)[0], "550 no such user"); !gaveUp || err != nil {
		t.Fatalf("given up: %v, %v", gaveUp, err)
	}
	alert := value[int64](h, `SELECT id FROM alerts WHERE type = 'Mail Not Delivered' AND content LIKE '%staff@archive.org%550 no such user'`)
	if to := h.mailedTo(alert); to != "other" {
		t.Errorf("that mail does not arrive at staff is mailed to %q", to)
	}
	h.exec(`UPDATE mail_outbox SET created_at = now() - interval '73 hours', attempts = 20`)
	if gaveUp, err := h.Failed(t.Context(), h.claim(1)[0], "550 either"); !gaveUp || err != nil {
		t.Fatalf("given up: %v, %v", gaveUp, err)
	}
	if n := value[int64](h, `SELECT count(*) FROM alerts WHERE type = 'Mail Not Delivered'`); n != 1 {
		t.Errorf("%d alerts that mail is not delivered: each makes the next", n)
	}
}

// A person gets 20 mails an hour. The others become one digest, and none is lost.
func TestMoreThanTwentyAnHourBecomeADigest(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	alerts := map[int64]bool{}
	for range 27 {
		alerts[h.alert("Repair Stopped", 0)] = true // to one admin
	}
	take := func(list []outbox.Mail) {
		for _, m := range list {
			for _, a := range m.Alerts {
				if !alerts[a.ID] {
					t.Errorf("alert %d comes twice", a.ID)
				}
				delete(alerts, a.ID)
			}
		}
		h.sent(list...)
	}
	first := h.claim(50)
	if len(first) != outbox.MostPerHour {
		t.Errorf("%d mails at once, want %d", len(first), outbox.MostPerHour)
	}
	take(first)
	h.lapse()
	if more := h.claim(50); len(more) != 0 { // the digest that is made here waits
		t.Errorf("within the hour %d more", len(more))
	}
	h.exec(`INSERT INTO mail_outbox (user_id, kind) SELECT id, 'reset' FROM users WHERE email = 'staff@archive.org'`)
	link := h.claim(50) // which a person waits for
	if len(link) != 1 || link[0].Kind != outbox.KindReset {
		t.Errorf("a link within the hour: %+v", link)
	}
	h.sent(link...)
	h.exec(`UPDATE mail_outbox SET sent_at = sent_at - interval '1 hour' WHERE sent_at IS NOT NULL`)
	h.lapse()
	last := h.claim(50)
	if len(last) != 1 || last[0].Kind != outbox.KindDigest || last[0].Total != 7 {
		t.Errorf("after the hour: %+v", last)
	}
	take(last)
	if len(alerts) != 0 {
		t.Errorf("%d alerts are in no mail", len(alerts))
	}
}

// What was tried may have arrived. It is not put into a digest, which would be another mail.
func TestATriedMailStaysTheSame(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.alert("Repair Stopped", 0)
	tried := h.claim(1)[0]
	for range 25 {
		h.alert("Repair Stopped", 0)
	}
	h.sent(h.claim(50)...)
	h.exec(`UPDATE mail_outbox SET kind = 'alert', sent_at = now() WHERE id = (SELECT min(id) FROM mail_outbox WHERE kind = 'daily')`)
	h.lapse()
	if early := h.claim(50); len(early) != 0 {
		t.Errorf("after 20 mails within the hour: %+v", early)
	}
	h.exec(`UPDATE mail_outbox SET sent_at = sent_at - interval '1 hour' WHERE sent_at IS NOT NULL`)
	h.lapse()
	for _, m := range h.claim(50) {
		if m.ID == tried.ID && m.Kind == outbox.KindAlert && m.MessageID == tried.MessageID {
			return
		}
	}
	t.Error("a mail that was tried is another one now")
}

func TestDailyAlertsAreOneDigest(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO mail_settings (user_id, problems) SELECT id, 'daily' FROM users WHERE role = 'admin'`)
	for range 3 {
		h.alert("Mail Not Delivered", 0)
	}
	if early := h.claim(10); len(early) != 0 {
		t.Errorf("before the morning: %+v", early)
	}
	h.lapse()
	digest := h.claim(10)
	if len(digest) != 1 || digest[0].Total != 3 {
		t.Fatalf("in the morning: %+v", digest)
	}
	h.alert("Mail Not Delivered", 0)
	h.lapse()
	again := h.claim(10)
	for _, m := range again {
		if m.MessageID == digest[0].MessageID && m.Total != 3 {
			t.Errorf("a digest that is sent again has %d alerts, had 3", m.Total)
		}
	}
	if len(again) != 2 {
		t.Errorf("%d digests, want the first and another one", len(again))
	}
}

// A digest lists the newest 200 of its alerts, and has no more in memory.
func TestALongDigestIsCutShort(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO mail_settings (user_id, problems) SELECT id, 'daily' FROM users WHERE role = 'admin'`)
	h.exec(`INSERT INTO alerts (type, subject, content) SELECT 'Mail Not Delivered', 'S' || n, 'C' FROM generate_series(1, 205) n`)
	h.lapse()
	digest := h.claim(10)
	if len(digest) != 1 || digest[0].Total != 205 || len(digest[0].Alerts) != 200 || digest[0].Alerts[0].Subject != "S205" || digest[0].Alerts[199].Subject != "S6" {
		t.Errorf("%d digests: %+v", len(digest), digest)
	}
}

// People who may not see an alert any more do not get it: they have moved, or are gone.
func TestMailIsWithdrawn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.alert("Deletion Completed", 1001)
	h.exec(`UPDATE users SET institution_id = 1002 WHERE email = 'a-admin@a.edu'`)
	h.exec(`UPDATE users SET deactivated_at = now() WHERE email = 'a-second@a.edu'`)
	list := h.claim(10)
	if len(list) != 1 || list[0].Email != "a-admin@a.edu" || list[0].Total != 0 || len(list[0].Alerts) != 0 {
		t.Errorf("%+v", list)
	}
	if why := value[string](h, `SELECT error FROM mail_outbox WHERE gave_up_at IS NOT NULL`); !strings.Contains(why, "deactivated") {
		t.Errorf("of a person who is gone: %q", why)
	}
}

// Without a mail server the table does not grow.
func TestOldMailIsDroppedAndDeleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.alert("Service Held", 0)
	if n, err := h.Drop(t.Context()); n != 0 || err != nil {
		t.Errorf("young mail is dropped: %d, %v", n, err)
	}
	h.exec(`UPDATE mail_outbox SET created_at = now() - interval '73 hours'`)
	if n, err := h.Drop(t.Context()); n != 2 || err != nil {
		t.Errorf("dropped: %d, %v", n, err)
	}
	f, err := h.Figures(t.Context())
	if f.Waiting != 0 || err != nil {
		t.Errorf("waiting: %+v, %v", f, err)
	}
	if err := errors.Join(h.Tidy(t.Context())); err != nil || value[int64](h, `SELECT count(*) FROM mail_outbox`) != 2 {
		t.Errorf("mail is deleted too soon, %v", err)
	}
	h.exec(`UPDATE mail_outbox SET gave_up_at = now() - interval '31 days'`)
	if err := h.Tidy(t.Context()); err != nil || value[int64](h, `SELECT count(*) FROM mail_outbox`) != 0 {
		t.Errorf("old mail is kept, %v", err)
	}
}

// The clock is set back by an hour: mail does not wait for that hour.
func TestAClockThatIsSetBackKeepsNoMail(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.alert("Repair Stopped", 0)
	h.exec(`UPDATE mail_outbox SET created_at = now() + interval '1 hour', due_at = now() + interval '1 hour'`)
	if list := h.claim(1); len(list) != 1 {
		t.Error("the mail waits until the clock has come to where it was")
	}
}
