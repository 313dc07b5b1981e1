package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/bag"
)

// bagRules are the flags that say by which rules a bag is judged.
type bagRules struct {
	profile string
	plain   bool
}

func validateCommand() *cobra.Command {
	var asJSON bool
	var rules bagRules
	c := &cobra.Command{
		Use:   "validate BAG",
		Short: "Judge whether bags would be accepted",
		Long: `Tell whether a bag, in a local tar file or unpacked in a directory, would be
accepted, by the code that the pipeline itself runs. All errors are listed at
once; docs/validation-codes.md explains their codes. "-" reads a tar from
standard input.

The bag is judged by the profile that its BagIt-Profile-Identifier names: a
built-in one (` + strings.Join(bag.BuiltInProfiles(), ", ") + `) or one of the directory
FAROL_PROFILES, and APTrust's if it names none that is known.

Exit codes: 0 the bag is valid; 1 it is not; 2 that could not be found out, or a
manifest cannot be verified and nothing else is wrong.`,
		Example: `  farol validate photographs.tar
  farol validate photographs/
  farol validate photographs.tar --json
  farol validate photographs.tar --profile library.json
  farol validate photographs.tar --no-profile
  farol validate - < photographs.tar`,
		Args: oneArg("tar file or directory, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			profile, err := rules.choose()
			if err != nil {
				return err
			}
			most, err := load((*settings).readMaxFiles)
			if err != nil {
				return err
			}
			if f, ok := judgeName(args[0]); !ok {
				return report(cmd.OutOrStdout(), args[0], bag.Verdict{Errors: []bag.Finding{f}, Warnings: []bag.Finding{}}, asJSON)
			}
			b, err := readBag(cmd.Context(), args[0], cmd.InOrStdin(), most)
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), args[0], b.Validate(profile(b)), asJSON)
		},
	}
	c.Flags().StringVar(&rules.profile, "profile", "", "judge by this profile, whatever the bag names: a file in the JSON of BagIt Profiles 1.4, or the name of a built-in one")
	c.Flags().BoolVar(&rules.plain, "no-profile", false, "judge by BagIt itself (RFC 8493) alone")
	jsonFlag(c, &asJSON)
	return c
}

// choose returns what says by which profile a bag is judged. It fails before the
// bag is read.
func (r bagRules) choose() (func(*bag.Bag) *bag.Profile, error) {
	always := func(p *bag.Profile) func(*bag.Bag) *bag.Profile {
		return func(*bag.Bag) *bag.Profile { return p }
	}
	switch {
	case r.plain && r.profile != "":
		return nil, usage(errors.New("--profile and --no-profile contradict each other"), "give one or the other")
	case r.plain:
		return always(bag.PlainBagIt()), nil
	case r.profile != "":
		p, err := chooseProfile(r.profile)
		if err != nil {
			return nil, usage(err, "name a file in the JSON of BagIt Profiles, or one of "+strings.Join(bag.BuiltInProfiles(), ", "))
		}
		return always(p), nil
	}
	profiles, err := load((*settings).readProfiles)
	return profiles.Of, err
}

// judgeName judges the name that the tar at path would be uploaded under, as Receive
// does before it reads the bag. A directory gets its tar's name later.
func judgeName(path string) (f bag.Finding, ok bool) {
	if info, err := os.Stat(path); path == "-" || err != nil || info.IsDir() {
		return f, true
	}
	return bag.JudgeName(filepath.Base(path))
}

// readBag reads the bag at path: a tar, a directory, or stdin if it is "-". Its
// errors say that nothing can be said about the bag.
func readBag(ctx context.Context, path string, stdin io.Reader, maxFiles int) (*bag.Bag, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return readBagDir(ctx, path, maxFiles)
	}
	in, size, err := openTar(path, stdin)
	if err != nil {
		return nil, usage(err, "name a tar file or directory that you may read, or - for standard input")
	}
	defer in.Close() //nolint:errcheck // only read
	show := newReadBar(size)
	b, err := bag.Read(ctx, bufio.NewReaderSize(in, 1<<20), bag.ReadOptions{
		Progress: func(_ string, _ int, bytes int64) { show.set(bytes) },
		MaxFiles: maxFiles,
	})
	show.end()
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return b, unread(err)
}

// readBagDir reads the directory's sizes first, if there is somebody to see the
// progress.
func readBagDir(ctx context.Context, dir string, maxFiles int) (*bag.Bag, error) {
	show := newReadBar(bytesIn(dir))
	b, err := bag.ReadDir(ctx, dir, bag.ReadOptions{
		Progress: func(_ string, _ int, bytes int64) { show.set(bytes) },
		MaxFiles: maxFiles,
	})
	show.end()
	return b, unread(err)
}

func unread(err error) error {
	if err == nil {
		return nil
	}
	return failure{
		code: exitUsage, err: err,
		next: "nothing was found out about the bag; see that it can be read to its end",
	}
}

// bytesIn is the size of a directory's files as far as they can be seen.
func bytesIn(dir string) (size int64) {
	if !isTerminal(os.Stderr) {
		return 0
	}
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is told when it is read
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}

// openTar opens the tar at path and tells its size, as far as that is known.
func openTar(path string, stdin io.Reader) (in io.ReadCloser, size int64, err error) {
	if path == "-" {
		if f, ok := stdin.(*os.File); ok && isTerminal(f) {
			return nil, 0, errors.New("standard input is a terminal")
		}
		return io.NopCloser(stdin), 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is neither a file nor a directory", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func report(w io.Writer, path string, v bag.Verdict, asJSON bool) error {
	answer := failure{code: exitFailed} // what was printed says it all
	if asJSON {
		if err := writeJSON(w, v); err != nil {
			return failure{code: exitUsage, err: err}
		}
	} else {
		if err := printVerdict(w, path, v); err != nil {
			return failure{code: exitUsage, err: err}
		}
		answer.next = "correct the bag and validate it again; docs/validation-codes.md explains the codes"
	}
	switch {
	case v.Valid:
		return nil
	case v.Unknown:
		answer.code = exitUsage
	}
	return answer
}

func printVerdict(w io.Writer, path string, v bag.Verdict) error {
	out := bufio.NewWriter(w)
	for _, f := range v.Errors {
		fmt.Fprintln(out, line("", f))
	}
	if v.More > 0 {
		fmt.Fprintf(out, "… and %s that are not listed\n", count(v.More, "error", "errors"))
	}
	for _, f := range v.Warnings {
		fmt.Fprintln(out, line("warning: ", f))
	}
	verdict := "valid"
	switch {
	case v.Unknown:
		verdict = "not verified, whether it is valid is unknown: " + count(len(v.Errors)+v.More, "error", "errors")
	case !v.Valid:
		verdict = "not valid: " + count(len(v.Errors)+v.More, "error", "errors")
	}
	if len(v.Warnings) > 0 {
		verdict += ", " + count(len(v.Warnings), "warning", "warnings")
	}
	about := "it was not read"
	if v.Profile != "" {
		about = fmt.Sprintf("profile %s, %s, %s", v.Profile, count(v.Files, "file", "files"), sizeOf(v.Bytes))
	}
	fmt.Fprintf(out, "%s is %s (%s)\n", plain(path), verdict, about)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

func line(kind string, f bag.Finding) string {
	if f.Path == "" {
		return fmt.Sprintf("%s%s: %s", kind, f.Code, plain(f.Message))
	}
	return fmt.Sprintf("%s%s: %s: %s", kind, f.Code, plain(f.Path), plain(f.Message))
}

// newReadBar is for a file that takes a while to read.
func newReadBar(size int64) *bar {
	const small = 64 << 20 // is read before one has looked
	if size <= small {
		return nil
	}
	return newBar(size, decor.CountersKibiByte("% .1f / % .1f"))
}
