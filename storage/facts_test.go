package storage_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/storage"
)

// A restoration chooses among buckets by their own facts.
func TestABucketTellsOfItsTarget(t *testing.T) {
	t.Parallel()
	type facts struct {
		name, target, provider, class string
		priority                      int
	}
	at := storage.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "x"}
	named := at
	named.Name, named.Provider, named.StorageClass, named.RestorePriority = "Glacier-VA", "AWS", "GLACIER", 6
	for _, tt := range []struct {
		at   storage.Target
		want facts
	}{
		{at, facts{"b", "b", "", "STANDARD", 0}},
		{named, facts{"b", "Glacier-VA", "AWS", "GLACIER", 6}},
	} {
		b := open(t, tt.at, storage.Options{})
		if got := (facts{b.Name(), b.TargetName(), b.Provider(), b.Class(), b.Priority()}); got != tt.want {
			t.Errorf("the bucket says %+v, want %+v", got, tt.want)
		}
	}
}

func TestPartsFitS3AtAnySize(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 48<<40).Draw(t, "size")
		part := storage.PartSize(size)
		switch {
		case size <= 256*mib && part != 0:
			t.Fatalf("PartSize(%d) = %d, want a single request", size, part)
		case size <= 256*mib:
		case part < 64*mib || part%mib != 0:
			t.Fatalf("PartSize(%d) = %d, want whole MiB, at least 64", size, part)
		case (size+part-1)/part > 10_000:
			t.Fatalf("PartSize(%d) = %d, which makes more than 10,000 parts", size, part)
		case part > 64*mib && (size+part-mib-1)/(part-mib) <= 10_000:
			t.Fatalf("PartSize(%d) = %d, where less would do", size, part)
		}
	})
}

func TestTargetsAreThoseOfTheField(t *testing.T) {
	t.Parallel()
	var names, options []string
	for i, spec := range storage.Targets() {
		if spec.RestorePriority != i+1 {
			t.Errorf("%s has restore priority %d at place %d", spec.Name, spec.RestorePriority, i+1)
		}
		suffix := strings.ToUpper(strings.ReplaceAll(spec.Name, "-", "_"))
		if spec.EnvVar != "BUCKET_"+suffix {
			t.Errorf("%s is configured by %s", spec.Name, spec.EnvVar)
		}
		class := ""
		switch {
		case strings.HasPrefix(spec.Name, "Glacier-Deep"):
			class = "DEEP_ARCHIVE"
		case strings.HasPrefix(spec.Name, "Glacier"), spec.Name == "Standard-OR":
			class = "GLACIER"
		}
		if spec.StorageClass != class {
			t.Errorf("%s has class %q, want %q", spec.Name, spec.StorageClass, class)
		}
		names = append(names, spec.Name)
		if !slices.Contains(options, spec.Option) {
			options = append(options, spec.Option)
		}
	}
	if len(names) != 11 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 11 {
		t.Errorf("the targets are %v, want eleven", names)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(storage.OptionNames())), slices.Sorted(slices.Values(options))); diff != "" {
		t.Errorf("options of targets (-listed +used):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Standard-VA", "Standard-OR"}, storage.TargetsOf("Standard")); diff != "" {
		t.Errorf("targets of Standard (-want +got):\n%s", diff)
	}
	if got := storage.TargetsOf("Glacier-Deep-OH"); !slices.Equal(got, []string{"Glacier-Deep-OH"}) {
		t.Errorf("targets of Glacier-Deep-OH = %v", got)
	}
	if got := storage.TargetsOf("Punch cards"); got != nil {
		t.Errorf("targets of an unknown option = %v", got)
	}
}
