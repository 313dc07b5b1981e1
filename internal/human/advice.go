package human

import (
	"regexp"
	"strings"
)

// Command is what to do about a refusal, as a sentence with a command; "" if its code has
// none. The code and the arguments are those of registry.Refused.
func Command(code string, args map[string]string) string {
	return Fill(commands()[code], args, inShell)
}

func commands() map[string]string {
	return map[string]string{
		"condition-failed":      "docs/sql.md lists the columns of work_items.",
		"delete-again":          "To ask for it again: `farol delete request {name}{ --by user}`.",
		"deletion-not-approved": "Request the deletion: `farol delete request`; another person approves it: `farol delete approve`.",
		"item-is-one-upload":    "End it, `farol item cancel {item}`, and upload the bag as it should be.",
		"item-not-running":      "To see what it waits for: `farol item explain {item}`.",
		"item-waits":            "To see what that one waits for: `farol item explain {item}`.",
		"newer-item":            "End this one: `farol item cancel {item}`.",
		"no-pause":              "To list the pauses: `farol stage list`.",
		"no-user":               "To register the person: `farol user add`.",
		"not-at-stage":          "Name the stage that it has reached, or an earlier one: `farol requeue {item} --to {stage}`.",
		"paused-by-others":      "To list the pauses: `farol stage list`; to end the pause of another: `farol resume --pause ID`.",
		"permanent-attempt":     "To have the item tried again: `farol requeue {item}`.",
		"permanent-item":        "To end it: `farol item cancel {item}`; the archive takes it later.",
		"permanent-records":     "To end an item: `farol item cancel ID`; to stop work on all: `farol pause --all`.",
		"restore-again":         "To ask for it again: `farol restore {kind} {name}{ --by user}`.",
		"stage-kept":            "To pause it: `farol pause {stage}`.",
		"stages-by-function":    "To add a stage: `farol stage add`.",
		"too-many-by-hand":      "To change many items: `farol plan requeue`, which shows first what it would do.",
		"written-by-queue":      "To see what it waits for: `farol item explain {item}`; to have it tried again: `farol requeue {item}`.",
	}
}

var (
	argument  = regexp.MustCompile(`\{( --[a-z]+ )?([a-z]+)\}`)
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)
)

// Fill puts arguments into a sentence, each in the quotes of its language. An option without
// its argument is left out. If something has to end before, that is said first.
func Fill(sentence string, args map[string]string, quote func(string) string) string {
	if sentence == "" {
		return ""
	}
	text := argument.ReplaceAllStringFunc(sentence, func(found string) string {
		part := argument.FindStringSubmatch(found)
		if part[1] != "" && args[part[2]] == "" {
			return ""
		}
		return part[1] + quote(args[part[2]])
	})
	if after := args["after"]; after != "" {
		text = strings.ToUpper(after[:1]) + after[1:] + ". When that has ended, " + strings.ToLower(text[:1]) + text[1:]
	}
	return text
}

// inShell is a word as it is typed into a shell.
func inShell(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
