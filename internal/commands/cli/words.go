package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// wantsJSON reports whether a command was called with --json, even if it could not be
// parsed.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if f := cmd.Flags().Lookup("json"); f != nil && f.Changed {
		return f.Value.String() == "true"
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// FailureView is how a failure is printed with --json.
type FailureView struct {
	Error string `json:"error"`
	Next  string `json:"next"` // what to do
	Code  int    `json:"exit_code"`
}

// View is what people and programs read of a failure.
func (f Failure) View() FailureView {
	v := FailureView{Next: storage.Redact(f.Next), Code: f.Code}
	if f.Err != nil {
		v.Error = storage.Redact(InWords(f.Err))
	}
	return v
}

// report prints a failure for a person or a program.
func (f Failure) report(w io.Writer, asJSON bool) {
	v := f.View()
	if asJSON {
		if f.Err != nil {
			_ = WriteJSONLine(w, v) // there is nowhere else to report it
		}
		return
	}
	if v.Error != "" {
		fmt.Fprintln(w, "farol:", v.Error)
	}
	if v.Next != "" {
		fmt.Fprintln(w, "Next:", v.Next)
	}
}

// InWords says what an error says, without what the libraries of Go put around it.
func InWords(err error) string {
	text := err.Error()
	for _, part := range partsOf(err) {
		if said := part.Error(); said != "" {
			if words := wordsFor(part); words != "" {
				text = strings.ReplaceAll(text, said, words)
			}
		}
	}
	for _, r := range goTexts() {
		text = r.found.ReplaceAllString(text, r.words)
	}
	return text
}

// partsOf are an error and all errors that it wraps, the outer ones first.
func partsOf(err error) []error {
	if err == nil {
		return nil
	}
	parts := []error{err}
	switch w := err.(type) { //nolint:errorlint // each link is looked at by itself
	case interface{ Unwrap() error }:
		return append(parts, partsOf(w.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			parts = append(parts, partsOf(e)...)
		}
	}
	return parts
}

// wordsFor is the text for an error of a library; "" if its own is good.
func wordsFor(err error) string {
	switch e := err.(type) { //nolint:errorlint // as in partsOf
	case *registry.Refused:
		if next := human.Command(e.Code, e.Args); next != "" {
			return e.Error() + ". " + next
		}
	case *fs.PathError:
		return e.Path + " " + reasonOf(e.Err)
	case *os.SyscallError:
		return reasonOf(e.Err)
	case *strconv.NumError:
		if errors.Is(e.Err, strconv.ErrRange) {
			return "the number is too large"
		}
		return "it is not a number"
	case *net.DNSError:
		return "the host " + e.Name + " is not known"
	case *net.OpError:
		if e.Op == "dial" && e.Addr != nil {
			return "no connection to " + e.Addr.String() + ": " + InWords(e.Err)
		}
	}
	switch err { //nolint:errorlint // as in partsOf
	case context.DeadlineExceeded:
		return "there was no answer before the timeout"
	case io.ErrUnexpectedEOF, io.EOF:
		return "it ended too early"
	}
	return ""
}

// reasonOf says why the system refused something.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "may not be read or written by this user"
	case errors.Is(err, fs.ErrExist):
		return "exists already"
	}
	return err.Error()
}

type goText struct {
	found *regexp.Regexp
	words string
}

// goTexts are texts of libraries that keep no error to be asked for.
func goTexts() []goText {
	return []goText{
		{regexp.MustCompile(`strconv\.\w+: parsing ("(?:[^"\\]|\\.)*"): (?:invalid syntax|value out of range)`), "$1 is not valid here"},
		{regexp.MustCompile(`time: (?:invalid duration|unknown unit "[^"]*" in duration|missing unit in duration) ("(?:[^"\\]|\\.)*")`), "$1 is no duration such as 500ms, 30s or 5m"},
		{regexp.MustCompile(`context deadline exceeded`), "there was no answer before the timeout"},
		{regexp.MustCompile(`^requires at least (\d+) arg\(s\), only received (\d+)$`), "name at least $1 argument; there are $2"},
		{regexp.MustCompile(`^accepts at most (\d+) arg\(s\), received (\d+)$`), "name at most $1 argument; there are $2"},
		{regexp.MustCompile(`dial (?:tcp|unix) (\S+): connect: connection refused`), "no connection to $1: connection refused"},
	}
}
