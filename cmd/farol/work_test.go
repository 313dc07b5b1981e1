package main

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Settings that have no effect stop nobody, and nobody relies on them in vain.
func TestSettingsWithoutEffectAreTold(t *testing.T) {
	t.Parallel()
	farol := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(farol))
	c := exec.CommandContext(t.Context(), farol, "work")
	for name, value := range leastSettings(map[string]string{
		"APT_FIXITY_TIMEOUT": "3m", "BAG_RESTORER_WORKERS": "3", "FAROL_DATABASE_URL": "postgres://farol@127.0.0.1:1/farol",
	}) {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "settings without effect") || !strings.Contains(string(out), "settings=[APT_FIXITY_TIMEOUT]") {
		t.Errorf("farol work: %v\n%s", err, out)
	}
}

// A worker does not start with a lease that live work could lose, and names the
// setting to change.
func TestStartNamesTheSettingThatDoesNotFit(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	const refused = "settings do not fit: "
	for name, tc := range map[string]struct {
		environ    map[string]string
		told, next string // "": it starts
	}{
		"nothing set": {nil, "", ""},
		"a short lease": {
			map[string]string{"INGEST_PRESERVATION_UPLOADER_LEASE": "29s"},
			"Store: the lease (29s) is shorter than three heartbeats (3 × 10s)",
			"change INGEST_PRESERVATION_UPLOADER_LEASE",
		},
		"of two names": {
			map[string]string{"STAGING_UPLOADER_LEASE": "29s"}, "Copy To Staging: the lease (29s)", "change INGEST_STAGING_UPLOADER_LEASE or STAGING_UPLOADER_LEASE",
		},
		"all leases":               {map[string]string{"FAROL_LEASE": "29s"}, "the lease (29s)", "change FAROL_LEASE"},
		"rare heartbeats":          {map[string]string{"FAROL_HEARTBEAT": "11s"}, "(3 × 11s)", "change lease in stage_settings or FAROL_HEARTBEAT"},
		"one that fits":            {map[string]string{"INGEST_PRESERVATION_UPLOADER_LEASE": "30s"}, "", ""},
		"a long time to work":      {map[string]string{"INGEST_PRESERVATION_UPLOADER_TIMEOUT": "6h"}, "", ""},
		"and a lease far shorter":  {map[string]string{"INGEST_PRESERVATION_UPLOADER_TIMEOUT": "6h", "INGEST_PRESERVATION_UPLOADER_LEASE": "1m"}, "", ""},
		"lease and rare heartbeat": {map[string]string{"INGEST_RECORDER_LEASE": "3m", "FAROL_HEARTBEAT": "1m", "FAROL_LEASE": "3m"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, err := startEngine(t.Context(), db, workerOf(t, tc.environ), nil, nil)
			if err == nil {
				engine.Close()
			}
			var f cli.Failure
			switch {
			case tc.told == "" && err != nil:
				t.Errorf("it does not start: %v", err)
			case tc.told != "" && (!errors.As(err, &f) || f.Code != cli.ExitUsage || f.Next != tc.next ||
				!strings.HasPrefix(err.Error(), refused) || !strings.Contains(err.Error(), tc.told)):
				t.Errorf("%v\nnext: %s\nwant %s, next: %s", err, f.Next, tc.told, tc.next)
			}
		})
	}
	_, err := settings.Load(leastSettings(map[string]string{"INGEST_VALIDATOR_LEASE": "5s", "FAROL_HEARTBEAT": "2s"}), settings.Worker{})
	if err == nil || !strings.Contains(err.Error(), "INGEST_VALIDATOR_LEASE is 5s; it must be at least three times FAROL_HEARTBEAT, which is 2s") {
		t.Errorf("err = %v", err)
	}
}

// Flags go before FAROL_POOLS, that before the file, and that before the default.
func TestWhereThePoolsComeFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pools")
	must.Do(t, os.WriteFile(file, []byte("# ours\n\nfiled=Receive;slots=3\nmore=Store\n"), 0o600))
	for name, tc := range map[string]struct {
		environ map[string]string
		flags   workFlags
		want    string
	}{
		"nothing":   {want: "small large requests large requests"},
		"a file":    {environ: map[string]string{"FAROL_POOLS_FILE": file}, want: "filed more"},
		"a setting": {environ: map[string]string{"FAROL_POOLS": "set=* | too=Record"}, want: "set too"},
		"flags": {
			environ: map[string]string{"FAROL_POOLS": "set=*"}, flags: workFlags{pools: []string{"a=Receive", "b=Store;slots=2"}}, want: "a b",
		},
		"one pool by its settings": {environ: map[string]string{"FAROL_POOLS": "set=*"}, flags: workFlags{slots: 2}, want: "flags"},
	} {
		pools, err := tc.flags.choose(workerOf(t, tc.environ).Pools.List)
		var names []string
		for _, p := range pools {
			names = append(names, p.Name)
		}
		if err != nil || strings.Join(names, " ") != tc.want {
			t.Errorf("%s: %v, %v; want %s", name, names, err, tc.want)
		}
	}
	if _, err := (workFlags{pools: []string{"a=*"}, slots: 2}).choose(nil); err == nil {
		t.Error("two ways to say the same were accepted")
	}
	for name, environ := range map[string]map[string]string{
		"FAROL_POOLS":      {"FAROL_POOLS": "a=Receive\nb=Stroe"},
		"FAROL_POOLS_FILE": {"FAROL_POOLS_FILE": filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := settings.Load(leastSettings(environ), settings.Worker{}); err == nil || !strings.Contains(err.Error(), name+" is") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// leastSettings is the least that a worker can run with, and more.
func leastSettings(more map[string]string) map[string]string {
	environ := map[string]string{
		"FAROL_DATABASE_URL": "postgres://farol:geheim@db:5432/farol", "FAROL_REDIS_URL": "redis://:geheim@redis:6379/0",
		"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "geheim",
	}
	maps.Copy(environ, more)
	return environ
}

func workerOf(t *testing.T, more map[string]string) settings.Worker {
	t.Helper()
	c := must.Get(settings.Load(leastSettings(more), settings.Worker{}))(t)
	return c
}
