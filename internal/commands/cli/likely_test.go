package cli

import "testing"

func TestLikelyValueIsSuggested(t *testing.T) {
	t.Parallel()
	statuses := []string{"Pending", "Started", "Success", "Failed", "Cancelled", "Suspended"}
	for value, want := range map[string]string{
		"done": "Success", "Succes": "Success", "canceled": "Cancelled", "fialed": "Failed", "xyz": "", "a": "", "": "",
	} {
		if got := likely(value, statuses); got != want {
			t.Errorf("likely(%q) = %q, want %q", value, got, want)
		}
	}
	if got := likely("b", []string{"A", "D"}); got != "" {
		t.Errorf("a letter is taken for %q", got)
	}
	_, err := OneOf("--status", "done", statuses)
	if err == nil || err.Error() != `unknown status "done"; did you mean Success?` {
		t.Errorf("OneOf: %v", err)
	}
}
