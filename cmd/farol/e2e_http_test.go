package main

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/auth"
)

// A store that is reached over plain HTTP serves a whole life: bags come in, are checked, given
// back and deleted, and every record, event, receipt and page has the URLs as they are.
func TestWholeLifeOverPlainHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := s.s3.Plain
	s.settings["FAROL_S3_ENDPOINT"] = at
	s.settings["FAROL_TARGET_STANDARD_OR_STORAGE_CLASS"] = "STANDARD" // so that it can be read at once
	first, second := s.requests()
	w := s.worker()
	bag := sampleBag("plain")
	bag.Files = append(bag.Files, random("data/large.bin", 20<<20, 0))
	s.deposit(bag)
	s.atRest(w)
	const files = sampleFiles + 1
	s.farol("fixity", "check", "test.edu/plain")
	w.eventually("all copies to be checked", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM storage_records WHERE last_fixity_at IS NOT NULL`) == files // the other target keeps copies that are not read
	})
	s.farol("restore", "object", "test.edu/plain")
	s.atRest(w)
	s.farol("restore", "file", "test.edu/plain/data/a.bin")
	s.atRest(w)
	s.restoredBag("test.edu/plain")
	shown := s.farol("file", "show", "test.edu/plain/data/a.bin") + s.farol("export", "premis", "--object", "test.edu/plain")
	s.aged()
	s.delete(first, second, "test.edu/plain/data/a.bin")
	s.atRest(w)
	counts(t, s.db, map[string]int{
		`SELECT count(*) FROM work_items WHERE status <> 'Success'`:                                                                                                 0,
		`SELECT count(*) FROM storage_records WHERE url = '` + at + `/' || bucket || '/' || key`:                                                                    2 * (files - 1),
		`SELECT count(*) FROM storage_records`:                                                                                                                      2 * (files - 1),
		`SELECT count(*) FROM premis_events WHERE event_type IN ('replication', 'identifier assignment') AND outcome_detail LIKE '` + at + `/%'`:                    2 * files,
		`SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome_information LIKE 'Fixity matches at ` + at + `/%'`:                        files,
		`SELECT count(*) FROM deletion_receipts WHERE absent_at IS NOT NULL AND url LIKE '` + at + `/%'`:                                                            2,
		`SELECT count(*) FROM work_items WHERE action LIKE 'Restore%' AND note LIKE '%` + at + `/%'`:                                                                2,
		`SELECT count(*) FROM premis_events WHERE concat(detail, outcome_detail, outcome_information) LIKE '%https://' || split_part('` + at + `', '//', 2) || '%'`: 0,
	})
	_, secret, err := s.registry.AddToken(t.Context(), record.Token{Name: "dashboard", Permissions: []string{"files.read", "objects.read", "copies.read"}})
	if err != nil {
		t.Fatal(err)
	}
	with := maps.Clone(s.settings)
	with["FAROL_DATABASE_URL"], with["FAROL_WEB_ADDR"], with["FAROL_WEB_KEY"] = testenv.WebURL(t, s.settings["FAROL_DATABASE_URL"]), "127.0.0.1:0", auth.NewKey()
	status, page := s.servedWeb(with, secret)("/api/v1/files/by-identifier?identifier=test.edu/plain/data/b.bin")
	if status != http.StatusOK {
		t.Errorf("the file: %d %s", status, page)
	}
	for name, text := range map[string]string{"the commands": shown, "the REST API": page} {
		for _, target := range []string{"Standard-VA", "Standard-OR"} {
			if want := at + "/" + s.targets[target].Name() + "/"; !strings.Contains(text, want) {
				t.Errorf("%s show no %s:\n%s", name, want, text)
			}
		}
	}
	if said := w.said(); strings.Contains(said, "plain HTTP") {
		t.Errorf("the worker warns of a store on this machine:\n%s", said)
	}
}

// Each process that uses a store over plain HTTP says once, when it starts, what that means, if
// the store is not on this machine; so does farol check.
func TestPlainHTTPIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.created(s.in.RestoreBucket)
	away := strings.Replace(s.s3.Plain, "127.0.0.1", "0.0.0.0", 1) // which leads here, and is no address of loopback
	with := maps.Clone(s.settings)
	with["FAROL_WEB_ADDR"], with["FAROL_WEB_KEY"] = "127.0.0.1:0", auth.NewKey()
	web := testenv.WebURL(t, s.settings["FAROL_DATABASE_URL"])
	for _, args := range [][]string{{"work"}, {"schedule"}, {"read-buckets", "--interval", "1h"}, {"serve", "--web"}} {
		for endpoint, want := range map[string]int{away: 1, s.s3.Plain: 0} {
			with["FAROL_S3_ENDPOINT"], with["FAROL_DATABASE_URL"] = endpoint, s.settings["FAROL_DATABASE_URL"]
			if args[0] == "serve" {
				with["FAROL_DATABASE_URL"] = web
			}
			p := startProcess(t, s.binary, t.TempDir(), with, args...)
			started := regexp.MustCompile(`msg=(working|scheduling|serving) `)
			p.eventually("the start", func() bool { return started.MatchString(p.said()) })
			stop(t, p)
			if n := strings.Count(p.said(), "travel unprotected"); n != want {
				t.Errorf("farol %s warns %d times of %s, want %d:\n%s", strings.Join(args, " "), n, endpoint, want, p.said())
			}
		}
	}
	with["FAROL_S3_ENDPOINT"], with["FAROL_TARGET_WASABI_OR_ENDPOINT"] = s.s3.Plain, away
	with["FAROL_DATABASE_URL"], with["FAROL_TARGET_WASABI_OR_REGION"] = s.settings["FAROL_DATABASE_URL"], s.s3.Region
	p := startProcess(t, s.binary, t.TempDir(), with, "check")
	must.Do(t, p.wait())
	row := regexp.MustCompile(`(?m)^s3, encryption +warning +plain HTTP to ` + away + `: .* travel unprotected\n +to do: +use https URLs in FAROL_TARGET_WASABI_OR_ENDPOINT$`)
	if n := len(row.FindAllString(p.said(), -1)); n != 1 || strings.Count(p.said(), "s3, encryption") != 1 {
		t.Errorf("%d rows:\n%s", n, p.said())
	}
}
