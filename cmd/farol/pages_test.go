package main

import (
	"strings"
	"testing"

	"github.com/farol-preservation/farol/web/console"
)

// What a page of the console shows as the same in the shell can be run as it stands.
func TestCommandsOfPagesAreReal(t *testing.T) {
	t.Parallel()
	all := console.Commands()
	if len(all) < 25 {
		t.Fatalf("only %d commands", len(all))
	}
	for _, line := range all {
		args := strings.Fields(strings.NewReplacer("{id}", "1", "IDENTIFIER", "test.edu/photographs", "{email}", "ann@test.edu").Replace(line))
		if args[0] != "farol" {
			t.Errorf("%s: it does not begin with farol", line)
			continue
		}
		c, rest, err := rootCommand().Find(args[1:])
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil || !c.Runnable() || !c.HasParent() {
			t.Errorf("%s: %s, %v", line, c.CommandPath(), err)
		}
	}
}
