package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/pipeline"
)

func TestPools(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pipeline.Pool{
		"one=Record": {Name: "one", Stages: []string{"Record"}, Slots: 1},
		"small=Receive..Cleanup;max=1GiB;slots=8": {
			Name: "small", Stages: stageNames(), MaxSize: 1 << 30, Slots: 8,
		},
		" large = * ; min = 1GiB ; slots = 2 ; help = no ": {
			Name: "large", Stages: stepNames(), MinSize: 1 << 30, Slots: 2, Alone: true,
		},
		"two=cleanup, receive..reingest check": {
			Name: "two", Stages: []string{"Receive", "Validate", "Reingest Check", "Cleanup"}, Slots: 1,
		},
		"cold=Store;provider=wasabi;institution=a.edu, b.edu": {
			Name: "cold", Stages: []string{"Store"}, Slots: 1,
			StorageOptions: []string{"Wasabi-VA", "Wasabi-OR", "Wasabi-TX"}, Institutions: []string{"a.edu", "b.edu"},
		},
		"aws=Store;provider=AWS": {
			Name: "aws", Stages: []string{"Store"}, Slots: 1,
			StorageOptions: []string{"Standard", "Glacier-VA", "Glacier-OH", "Glacier-OR", "Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR"},
		},
		"old=Record;age=36h":          {Name: "old", Stages: []string{"Record"}, Slots: 1, MinAge: 36 * time.Hour},
		"tx=Store;provider=Wasabi-TX": {Name: "tx", Stages: []string{"Store"}, Slots: 1, StorageOptions: []string{"Wasabi-TX"}},
	} {
		got, err := parsePool(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// Each mistake is named, with what there is instead.
func TestWrongPoolsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "does not begin with a name",
		"small":                          "does not begin with a name",
		"=*":                             "does not begin with a name",
		"small=Stroe":                    `there is no stage "Stroe"; the stages are Receive`,
		"small=":                         `there is no stage ""`,
		"small=Store..Receive":           "Receive comes before Store",
		"small=Receive..":                `there is no stage ""`,
		"small=*;slots=0":                `slots is "0"`,
		"small=*;slots=many":             `slots is "many"`,
		"small=*;slots=99999999999999":   `slots is "99999999999999"`,
		"small=*;age=long":               `age is "long"`,
		"small=*;age=-1h":                `age is "-1h"`,
		"small=*;max=1GB":                "must be a number of bytes",
		"small=*;max=0":                  "leave it out for no bound",
		"small=*;min=1GiB;max=1GiB":      "no item is at least 1073741824 and below 1073741824 bytes",
		"small=*;min=-1":                 "must be a number of bytes",
		"small=*;provider=Azure":         `there is no provider "Azure"; the providers are AWS`,
		"small=*;help=maybe":             "must be yes or no",
		"small=*;size=3":                 `there is no setting "size"`,
		"small=*;slots":                  `"slots" is no setting`,
		"small=*;slots=2;slots=3":        "slots is there twice",
		"small=*;":                       `"" is no setting`,
		"small=Receive;institution=":     `"institution=" is no setting`,
		"small=Receive,,Store;slots=2":   `there is no stage ""`,
		"small=Receive..Store..Cleanup;": "there is no stage",
	} {
		if _, err := parsePool(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Whatever is typed, it is a pool that works or a mistake that is named.
func TestPoolsNeverPanic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "=", ";", "*", "..", ",", "|", "\n", "#", "Receive", "Store", "min", "max", "slots", "provider", "1", "0", "GiB", "-", " ", "é",
		})).Draw(t, "parts")
		pools, err := parsePools(strings.Join(parts, ""))
		if err != nil {
			return
		}
		for _, p := range pools {
			if p.Name == "" || len(p.Stages) == 0 || p.Slots < 1 || p.MaxSize != 0 && p.MaxSize <= p.MinSize {
				t.Errorf("%q gave %+v", parts, p)
			}
		}
	})
}

// Flags go before FAROL_POOLS, that before the file, and that before the default.
func TestWhereThePoolsComeFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pools")
	if err := os.WriteFile(file, []byte("# ours\n\nfiled=Receive;slots=3\nmore=Store\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		environ map[string]string
		flags   workFlags
		want    string
	}{
		"nothing":   {want: "small large requests large requests"},
		"a file":    {environ: map[string]string{"FAROL_POOLS_FILE": file}, want: "filed more"},
		"a setting": {environ: map[string]string{"FAROL_POOLS_FILE": file, "FAROL_POOLS": "set=* | too=Record"}, want: "set too"},
		"flags": {
			environ: map[string]string{"FAROL_POOLS": "set=*"}, flags: workFlags{pools: []string{"a=Receive", "b=Store;slots=2"}}, want: "a b",
		},
		"one pool by its settings": {environ: map[string]string{"FAROL_POOLS": "set=*"}, flags: workFlags{slots: 2}, want: "flags"},
	} {
		pools, err := tc.flags.choose(worker(t, tc.environ).Pools)
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
		if _, err := loadFrom(enough(environ), readWorkerConfig); err == nil || !strings.Contains(err.Error(), name+" is") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
