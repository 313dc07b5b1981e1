// Package validate has the command that validates bags. What comes in are paths of tars and
// directories; what goes out are verdicts, as text or JSON.
package validate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
)

// bagRules are the flags that say by which rules a bag is judged.
type bagRules struct {
	profile string
	plain   bool
}

// Command is farol validate.
func Command() *cobra.Command {
	return op.Command{
		Use:   "validate BAG...",
		Short: "Validate bags",
		Long: `Report whether bags would be accepted, by the code that the pipeline itself runs. A
bag is a local tar file, or unpacked in a directory. If a directory is not a bag, all
*.tar files directly in it are validated. "-" reads a tar from standard input. All
errors are listed at once; docs/validation-codes.md explains their codes.

Several bags are read one after the other. A table has a line for each, and the
errors of those that are not valid follow. With --json, one bag is one JSON object,
and several, or those of a directory, are one object a line as they are judged.

A bag is judged by the profile that its BagIt-Profile-Identifier names: a
built-in one (` + strings.Join(profile.BuiltIn(), ", ") + `) or one of the directory
FAROL_PROFILES, and APTrust's if it names none that is known.

Exit codes: 0 the bag is valid; 1 it is not; 2 unknown result, or a manifest cannot
be verified and nothing else is wrong. For several bags it is the
highest of their codes.`,
		Example: `  farol validate photographs.tar
  farol validate photographs/
  farol validate photographs.tar letters.tar deposits/
  farol validate deposits/ --json
  farol validate photographs.tar --json
  farol validate photographs.tar --profile library.json
  farol validate photographs.tar --no-profile
  farol validate - < photographs.tar`,
		Args: someBags,
		Flags: []op.Flag{
			{Name: "profile", Help: "judge by this profile, whatever the bag names: a file in the JSON of BagIt Profiles 1.4, or the name of a built-in one"},
			{Name: "no-profile", Kind: op.Truth, Help: "judge by BagIt itself (RFC 8493) alone"},
		},
	}.Alone(func(c *op.Call) error {
		profile, err := bagRules{c.Text("profile"), c.Given("no-profile")}.choose()
		if err != nil {
			return err
		}
		most, err := connect.Load(settings.Bags{})
		if err != nil {
			return err
		}
		v := validation{profile: profile, maxFiles: most.MaxFiles, stdin: c.Cmd.InOrStdin(), out: c.Cmd.OutOrStdout(), asJSON: c.JSON}
		bags, many := bagsOf(c.Args)
		if many {
			return v.all(c.Cmd.Context(), bags)
		}
		return v.one(c.Cmd.Context(), bags[0])
	})
}

// someBags asks for at least one bag, and for standard input once.
func someBags(_ *cobra.Command, args []string) error {
	stdin := 0
	for _, arg := range args {
		if arg == "-" {
			stdin++
		}
	}
	switch {
	case len(args) == 0:
		return errors.New("name tar files or directories, or - for standard input")
	case stdin > 1:
		return errors.New("standard input holds one bag; name - once")
	}
	return nil
}

// validation is how bags are judged, and where the verdicts go.
type validation struct {
	profile  func(*bag.Bag) *bag.Profile
	maxFiles int
	stdin    io.Reader
	out      io.Writer
	asJSON   bool
}

// one judges the only bag.
func (v validation) one(ctx context.Context, b namedBag) error {
	size := b.size(ctx)
	show := newReadBar(size, decor.CountersKibiByte("% .1f / % .1f"))
	verdict, err := v.judge(ctx, b, show.Set)
	show.End()
	if err != nil {
		return err
	}
	return report(v.out, b.path, verdict, v.asJSON)
}

// judge judges a bag, its name first, and passes the number of bytes read to seen.
// Its errors say that nothing can be said about the bag.
func (v validation) judge(ctx context.Context, b namedBag, seen func(bytes int64)) (bag.Verdict, error) {
	if b.err != nil {
		return bag.Verdict{}, b.err
	}
	// A tar is judged as Receive does before it reads the bag, by the name that it would be
	// uploaded under. A directory gets its tar's name later.
	if b.info != nil && !b.info.IsDir() {
		if f, ok := bag.JudgeName(filepath.Base(b.path)); !ok {
			return bag.Verdict{Errors: []bag.Finding{f}, Warnings: []bag.Finding{}}, nil
		}
	}
	read, err := b.read(ctx, v.stdin, bag.ReadOptions{
		Progress: func(_ string, _ int, bytes int64) { seen(bytes) }, MaxFiles: v.maxFiles,
	})
	if err != nil {
		return bag.Verdict{}, err
	}
	return read.Validate(v.profile(read)), nil
}

// choose returns what says by which profile a bag is judged. It fails before the
// bag is read.
func (r bagRules) choose() (func(*bag.Bag) *bag.Profile, error) {
	always := func(p *bag.Profile) func(*bag.Bag) *bag.Profile {
		return func(*bag.Bag) *bag.Profile { return p }
	}
	switch {
	case r.plain && r.profile != "":
		return nil, cli.Usage(errors.New("--profile and --no-profile contradict each other"), "give one or the other")
	case r.plain:
		return always(profile.Plain()), nil
	case r.profile != "":
		p, err := settings.ChooseProfile(r.profile)
		if err != nil {
			return nil, cli.Usage(err, "name a file in the JSON of BagIt Profiles, or one of "+strings.Join(profile.BuiltIn(), ", "))
		}
		return always(p), nil
	}
	profiles, err := connect.Load(settings.Profiles{})
	return profiles.All.Of, err
}

// read reads the bag: a tar, a directory, or stdin. Its errors say that nothing can be said
// about the bag.
func (b namedBag) read(ctx context.Context, stdin io.Reader, o bag.ReadOptions) (*bag.Bag, error) {
	if b.isDir() {
		read, err := bag.ReadDir(ctx, b.path, o)
		return read, unread(err)
	}
	in, err := b.open(stdin)
	if err != nil {
		return nil, cli.Usage(err, "name a tar file or directory that you may read, or - for standard input")
	}
	defer in.Close() //nolint:errcheck // only read
	read, err := bag.Read(ctx, bufio.NewReaderSize(in, 1<<20), o)
	if err != nil {
		err = fmt.Errorf("read %s: %w", b.path, err)
	}
	return read, unread(err)
}

func unread(err error) error {
	if err == nil {
		return nil
	}
	return cli.Failure{
		Code: cli.ExitUsage, Err: err,
		Next: "nothing was found out about the bag; see that it can be read to its end",
	}
}

// open opens a tar. What is no file is not opened: a pipe would wait for its writer.
func (b namedBag) open(stdin io.Reader) (io.ReadCloser, error) {
	switch {
	case b.path == "-":
		if f, ok := stdin.(*os.File); ok && cli.IsTerminal(f) {
			return nil, errors.New("standard input is a terminal")
		}
		return io.NopCloser(stdin), nil
	case b.info != nil && !b.info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is neither a file nor a directory", b.path)
	}
	return os.Open(b.path)
}

func report(w io.Writer, path string, v bag.Verdict, asJSON bool) (err error) {
	_, code := resultOf(v)
	answer := cli.Failure{Code: code} // what was printed says it all
	if asJSON {
		err = cli.WriteJSON(w, v)
	} else {
		err = printVerdict(w, path, v)
		answer.Next = "correct the bag and validate it again; docs/validation-codes.md explains the codes"
	}
	switch {
	case err != nil:
		return cli.Failure{Code: cli.ExitUsage, Err: err}
	case v.Valid:
		return nil
	}
	return answer
}

// resultOf is what a verdict comes to, and its exit code.
func resultOf(v bag.Verdict) (result string, code int) {
	switch {
	case v.Unknown:
		return "not verified", cli.ExitUsage
	case !v.Valid:
		return "not valid", cli.ExitFailed
	}
	return "valid", cli.ExitOK
}

func printVerdict(w io.Writer, path string, v bag.Verdict) error {
	out := bufio.NewWriter(w)
	for _, f := range v.Errors {
		fmt.Fprintln(out, line("", f))
	}
	if v.More > 0 {
		fmt.Fprintf(out, "… and %s that are not listed\n", human.Count(v.More, "error", "errors"))
	}
	for _, f := range v.Warnings {
		fmt.Fprintln(out, line("warning: ", f))
	}
	verdict := "valid"
	switch {
	case v.Unknown:
		verdict = "not verified, whether it is valid is unknown: " + human.Count(len(v.Errors)+v.More, "error", "errors")
	case !v.Valid:
		verdict = "not valid: " + human.Count(len(v.Errors)+v.More, "error", "errors")
	}
	if len(v.Warnings) > 0 {
		verdict += ", " + human.Count(len(v.Warnings), "warning", "warnings")
	}
	about := "it was not read"
	if v.Profile != "" {
		about = fmt.Sprintf("profile %s, %s, %s", v.Profile, human.Count(v.Files, "file", "files"), human.Bytes(v.Bytes))
	}
	fmt.Fprintf(out, "%s is %s (%s)\n", human.Line(path), verdict, about)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

func line(kind string, f bag.Finding) string {
	if f.Path == "" {
		return fmt.Sprintf("%s%s: %s", kind, f.Code, human.Line(f.Message))
	}
	return fmt.Sprintf("%s%s: %s: %s", kind, f.Code, human.Line(f.Path), human.Line(f.Message))
}

// newReadBar is for bags that take a while to read.
func newReadBar(size int64, counters decor.Decorator) *cli.Bar {
	const small = 64 << 20 // is read before one has looked
	if size <= small {
		return nil
	}
	return cli.NewBar(size, counters)
}
