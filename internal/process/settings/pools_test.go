package settings

import (
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
			Name: "small", Stages: StageNames(), MaxSize: 1 << 30, Slots: 8,
		},
		" large = * ; min = 1GiB ; slots = 2 ; help = no ": {
			Name: "large", Stages: StepNames(), MinSize: 1 << 30, Slots: 2, Alone: true,
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
		"":                               "must begin with NAME=STAGES",
		"small":                          "must begin with NAME=STAGES",
		"=*":                             "must begin with NAME=STAGES",
		"small=Stroe":                    `there is no stage "Stroe"; the stages are Receive`,
		"small=":                         `there is no stage ""`,
		"small=Store..Receive":           "Receive comes before Store",
		"small=Receive..":                `there is no stage ""`,
		"small=*;slots=0":                `slots is "0"`,
		"small=*;slots=many":             `slots is "many"`,
		"small=*;slots=99999999999999":   `slots is "99999999999999"`,
		"small=*;age=long":               `age is "long"`,
		"small=*;age=-1h":                `age is "-1h"`,
		"small=*;max=1XB":                "must be a number of bytes",
		"small=*;max=0":                  "omit it for no upper bound",
		"small=*;min=1GiB;max=1GiB":      "no item is at least 1073741824 and below 1073741824 bytes",
		"small=*;min=-1":                 "must be a number of bytes",
		"small=*;provider=Azure":         `there is no provider "Azure"; the providers are AWS`,
		"small=*;help=maybe":             "must be yes or no",
		"small=*;size=3":                 `unknown setting "size"`,
		"small=*;slots":                  `unknown setting "slots"`,
		"small=*;slots=2;slots=3":        "slots appears twice",
		"small=*;":                       `unknown setting ""`,
		"small=Receive;institution=":     `unknown setting "institution="`,
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
		pools, err := ParsePools(strings.Join(parts, ""))
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
