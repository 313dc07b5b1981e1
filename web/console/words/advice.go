package words

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/web/reply"
)

// advice is what to do about a refusal, as the text of a link.
type advice struct{ Text, Path string }

// AdviceOn is what the person can do about a problem; nil if its rule has no page.
func AdviceOn(p *reply.Problem) *advice {
	a, found := advices()[p.Rule]
	if !found {
		return nil
	}
	return &advice{human.Fill(a.Text, p.Args, func(word string) string { return Text(word) }), human.Fill(a.Path, pathArgs(p.Args), url.PathEscape)}
}

// pathArgs are the arguments without what has to end before: a path is no sentence.
func pathArgs(args map[string]string) map[string]string {
	kept := map[string]string{}
	for k, v := range args {
		if k != "after" {
			kept[k] = v
		}
	}
	return kept
}

func advices() map[string]advice {
	item := func(text string) advice { return advice{text, "/items/{item}"} }
	return map[string]advice{
		"condition-failed":      {"Make the plan again, with a corrected condition", "/plans/new"},
		"delete-again":          {"Ask for the deletion again, on the page of the object", "/objects/{object}"},
		"deletion-not-approved": {"See the requests for deletions: one person requests, and another approves", "/deletions"},
		"item-is-one-upload":    item("End item {item}, and upload the bag as it should be"),
		"item-not-running":      item("See what item {item} waits for"),
		"item-waits":            item("See what item {item} waits for"),
		"newer-item":            item("End item {item}"),
		"no-pause":              {"See the stages and their pauses", "/stages"},
		"no-user":               {"See the people, and register one", "/users"},
		"not-at-stage":          item("Requeue item {item} to {stage}, which it has reached, or to an earlier stage"),
		"paused-by-others":      {"See the stages, and end the pause of another there", "/stages"},
		"permanent-attempt":     item("Requeue item {item} to have it tried again"),
		"permanent-item":        item("End item {item}; the archive takes it later"),
		"permanent-records":     {"See the queue, and pause all stages to stop work", "/queue"},
		"restore-again":         {"Ask for the restoration again, on the page of the object", "/objects/{object}"},
		"stage-kept":            {"Pause {stage}", "/stages"},
		"stages-by-function":    {"Add a stage", "/stages"},
		"too-many-by-hand":      {"Change many items by a plan", "/plans/new"},
		"written-by-queue":      item("See what item {item} waits for, or requeue it"),
	}
}

// inPlaceOf is the page on which a person does what a command does that an explanation names;
// false if a program has to be started.
func inPlaceOf(command string) (page advice, found bool) {
	item := numbered.FindString(command)
	words := numbered.ReplaceAllString(command, " {item}")
	page, found = pagesOfCommands()[words]
	for _, begin := range []string{"farol item priority {item} ", "farol resume '", "farol stage set "} {
		if strings.HasPrefix(words, begin) {
			page, found = pagesOfCommands()[begin]
		}
	}
	args := map[string]string{"item": strings.TrimSpace(item)}
	same := func(word string) string { return word }
	return advice{human.Fill(page.Text, args, same), human.Fill(page.Path, args, same)}, found
}

var numbered = regexp.MustCompile(` [0-9]+\b`)

func pagesOfCommands() map[string]advice {
	item := func(text string) advice { return advice{text, "/items/{item}"} }
	return map[string]advice{
		"farol delete cancel ID":                                    {"the button on its page", "/deletions"},
		"farol delete list":                                         {"Deletions", "/deletions"},
		"farol fixity status":                                       {"Fixity", "/fixity"},
		"farol item cancel {item}":                                  item("cancel item {item}"),
		"farol item explain {item}":                                 item("Item {item}"),
		"farol item priority {item} ":                               item("change the priority of item {item}"),
		"farol item release {item}":                                 item("release item {item}"),
		"farol item requeue {item}":                                 item("requeue item {item}"),
		"farol item show {item}":                                    item("Item {item}"),
		"farol item watch {item}":                                   item("Item {item}"),
		"farol requeue {item}":                                      item("requeue item {item}"),
		"farol requeue {item} --accept-missing":                     item("requeue item {item} without the copies that are missing"),
		"farol requeue {item} --to Receive":                         item("requeue item {item} to Receive"),
		"farol restore approve {item} --by EMAIL --on-paper REASON": {"approve restoration {item}", "/restorations/{item}"},
		"farol restore file":                                        {"Restore", "/restorations/new"},
		"farol restore object":                                      {"Restore", "/restorations/new"},
		"farol resume '":                                            {"resume it", "/stages"},
		"farol resume --pause ID":                                   {"its own button", "/stages"},
		"farol services":                                            {"Services", "/services"},
		"farol stage list":                                          {"Stages", "/stages"},
		"farol stage set ":                                          {"Stages", "/stages"},
		"farol workers":                                             {"Workers", "/workers"},
	}
}
