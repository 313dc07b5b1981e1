package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/bag"
)

func validateCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "validate BAG.tar",
		Short: "Tell whether a bag in a tar file would be accepted",
		Long: `Tell whether a bag in a local tar file would be accepted, by the code that the
pipeline itself runs. All errors are listed at once; docs/validation-codes.md
explains their codes. "-" reads the tar from standard input.

Exit codes: 0 the bag is valid; 1 it is not; 2 that could not be found out.`,
		Example: `  farol validate photographs.tar
  farol validate photographs.tar --json
  farol validate - < photographs.tar`,
		Args: oneArg("tar file, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			verdict, err := validate(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), args[0], verdict, asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// validate reads the tar at path; "-" is stdin. Its errors say that nothing can
// be said about the bag.
func validate(ctx context.Context, path string, stdin io.Reader) (bag.Verdict, error) {
	in, size, err := openTar(path, stdin)
	if err != nil {
		return bag.Verdict{}, usage(err, "name a tar file that you may read, or - for standard input")
	}
	defer in.Close() //nolint:errcheck // only read
	show := newReadBar(size)
	b, err := bag.Read(ctx, bufio.NewReaderSize(in, 1<<20), bag.ReadOptions{
		Progress: func(_ string, _ int, bytes int64) { show.set(bytes) },
	})
	show.end()
	if err != nil {
		return bag.Verdict{}, failure{
			code: exitUsage, err: fmt.Errorf("read %s: %w", path, err),
			next: "nothing was found out about the bag; see that the file can be read to its end",
		}
	}
	return b.Validate(nil), nil
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
		err = fmt.Errorf("%s is not a file", path)
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
	if v.Valid {
		return nil
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
	if !v.Valid {
		verdict = "not valid: " + count(len(v.Errors)+v.More, "error", "errors")
	}
	if len(v.Warnings) > 0 {
		verdict += ", " + count(len(v.Warnings), "warning", "warnings")
	}
	fmt.Fprintf(out, "%s is %s (profile %s, %s, %s)\n",
		plain(path), verdict, v.Profile, count(v.Files, "file", "files"), sizeOf(v.Bytes))
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
