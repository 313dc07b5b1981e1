package human

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "+5": 5, "64KiB": 64 << 10, "64 MiB": 64 << 20, " 1GiB ": 1 << 30, "8TiB": 8 << 40, "1.5 GiB": 3 << 29,
		"500MB": 500_000_000, "500mb": 500_000_000, "2m": 2_000_000, "2mi": 2 << 20, "7B": 7,
		"9223372036854775807": math.MaxInt64, "9007199254740993": 1<<53 + 1,
	} {
		if n, err := ParseBytes(text); err != nil || n != want {
			t.Errorf("%q is %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "GiB", "-1", "-1GiB", "1,5GiB", "1.5", "1.5.7GiB", "1 Gi B", "1GB1", "1e6", "0x10", "1XiB", "9223372036854775808", "8388608TiB", "１GiB",
	} {
		if n, err := ParseBytes(text); err == nil {
			t.Errorf("%q is taken for %d bytes", text, n)
		}
	}
}

// What the grammar before this one took means the same.
func TestSizesMeanWhatTheyMeant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"", "KiB", "MiB", "GiB", "TiB"}).Draw(t, "unit")
		shift := map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[unit]
		n := rapid.Int64Range(0, math.MaxInt64>>shift).Draw(t, "n")
		text := rapid.SampledFrom([]string{"", " "}).Draw(t, "before") + rapid.SampledFrom([]string{"", "+", "00"}).Draw(t, "sign") +
			strconv.FormatInt(n, 10) + strings.Repeat(" ", rapid.IntRange(0, 2).Draw(t, "between")) + unit
		if got, err := ParseBytes(text); err != nil || got != n<<shift {
			t.Errorf("%q is %d, %v; want %d", text, got, err, n<<shift)
		}
	})
}
