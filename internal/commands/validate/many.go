package validate

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/human"
)

// namedBag is a bag that a command line names, by itself or by its directory.
type namedBag struct {
	path string
	info fs.FileInfo // nil of standard input, and of what is not there
	err  error       // why nothing can be said about it
}

func named(path string) (b namedBag) {
	b.path = path
	if path != "-" {
		b.info, _ = os.Stat(path) // the reader says what is wrong
	}
	return b
}

func (b namedBag) isDir() bool { return b.info != nil && b.info.IsDir() }

// bagsOf are the bags that arguments name. many is false if the only one is named by
// itself: what is printed goes by how bags are named, not by how many a directory has.
func bagsOf(args []string) (bags []namedBag, many bool) {
	many = len(args) > 1
	for _, arg := range args {
		b := named(arg)
		var tars []string
		if b.isDir() {
			tars, b.err = lookInto(arg)
		}
		if len(tars) == 0 {
			bags = append(bags, b)
			continue
		}
		many = true
		for _, name := range tars {
			bags = append(bags, named(filepath.Join(arg, name)))
		}
	}
	return bags, many
}

// topOfBag are files that lie at the top of a bag and nowhere else.
var topOfBag = regexp.MustCompile(`^(bagit|(tag)?manifest-.*)\.txt$`)

// lookInto returns the tars in a directory; none if it is an unpacked bag itself. A bag that
// lacks bagit.txt is still one by its manifests, or by its payload.
func lookInto(dir string) (tars []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, cli.Usage(err, "name a directory that you may read")
	}
	payload, below := false, ""
	for _, e := range entries {
		name := e.Name()
		switch {
		case topOfBag.MatchString(name):
			return nil, nil
		case e.IsDir() && name == "data":
			payload = true
		case e.IsDir() && below == "":
			if _, err := os.Stat(filepath.Join(dir, name, "bagit.txt")); err == nil {
				below = name
			}
		case !e.IsDir() && strings.HasSuffix(name, ".tar"):
			tars = append(tars, name)
		}
	}
	switch {
	case len(tars) > 0 || payload:
		return tars, nil
	case below != "":
		return nil, cli.Usage(fmt.Errorf("%s holds no tar file, and is no bag itself", dir),
			"name each unpacked bag by its own directory, such as "+filepath.Join(dir, below))
	}
	return nil, cli.Usage(fmt.Errorf("no bag is in %s: no file *.tar, and no bagit.txt", dir),
		"name tar files, a directory that holds them, or the directory of an unpacked bag")
}

// size is the number of bytes to read for a bag, as far as it is known and there is
// a person to see the progress.
func (b namedBag) size(ctx context.Context) (size int64) {
	if !cli.IsTerminal(os.Stderr) || b.info == nil || b.err != nil {
		return 0
	}
	// The walk does not follow a link that it begins with.
	if b.info.Mode().IsRegular() {
		return b.info.Size()
	}
	_ = filepath.WalkDir(b.path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ctx.Err() // what cannot be read is reported when it is read
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return ctx.Err()
	})
	return size
}

// manyVerdicts gathers the output about several bags: a line for each, and for invalid
// ones the text that follows the table.
type manyVerdicts struct {
	rows    [][]string
	details bytes.Buffer
	results map[string]int
	worst   int
}

// mostDetails bounds the text that waits for the table to be written.
const mostDetails = 16 << 20

// all judges bags one after the other, so that no more than one is in memory. When it
// is interrupted it prints the results until then.
func (v validation) all(ctx context.Context, bags []namedBag) error {
	many := manyVerdicts{results: map[string]int{}}
	err := v.each(ctx, bags, &many)
	if err == nil && !v.asJSON {
		err = v.print(&many, len(bags))
	}
	answer := cli.Failure{Code: many.worst} // what was printed says it all
	switch {
	case err != nil:
		return cli.Failure{Code: cli.ExitUsage, Err: err}
	case ctx.Err() != nil:
		return cli.Failure{Code: cli.ExitUsage, Err: ctx.Err()}
	case many.worst == cli.ExitOK:
		return nil
	case !v.asJSON && many.results["not valid"]+many.results["not verified"] > 0:
		answer.Next = "correct these bags and validate them again; docs/validation-codes.md explains the codes"
	}
	return answer
}

// each adds the verdict on each bag until ctx ends.
func (v validation) each(ctx context.Context, bags []namedBag, many *manyVerdicts) error {
	var total, before int64
	sizes := make([]int64, len(bags))
	for i, b := range bags {
		sizes[i] = b.size(ctx)
		total += sizes[i]
	}
	var now atomic.Int64
	show := newReadBar(total, decor.Any(func(s decor.Statistics) string {
		return fmt.Sprintf("bag %d of %d, %s / %s", now.Load(), len(bags), human.Bytes(s.Current), human.Bytes(s.Total))
	}))
	defer show.End()
	for i, b := range bags {
		now.Store(int64(i + 1))
		verdict, reason := v.judge(ctx, b, func(n int64) { show.Set(before + n) })
		if ctx.Err() != nil {
			return nil // the caller sees it too
		}
		before += sizes[i]
		if err := v.add(many, b.path, verdict, reason); err != nil {
			return err
		}
	}
	return nil
}

// bagView is a bag of several with --json: the verdict, or why there is none.
type bagView struct {
	Bag string `json:"bag"`
	*bag.Verdict
	*cli.FailureView
}

// add takes in a bag that was judged, or could not be for a reason.
func (v validation) add(many *manyVerdicts, path string, verdict bag.Verdict, reason error) error {
	if reason != nil {
		return v.addUnread(many, path, cli.FailureOf(reason))
	}
	result, code := resultOf(verdict)
	many.results[result]++
	many.worst = max(many.worst, code)
	if v.asJSON {
		return cli.WriteJSONLine(v.out, bagView{Bag: path, Verdict: &verdict})
	}
	first := ""
	switch {
	case len(verdict.Errors) > 0:
		first = line("", verdict.Errors[0])
	case len(verdict.Warnings) > 0:
		first = line("warning: ", verdict.Warnings[0])
	}
	many.rows = append(many.rows, []string{human.Line(path), result, human.Number(int64(len(verdict.Errors) + verdict.More)), human.Number(int64(len(verdict.Warnings))), first})
	if code == cli.ExitOK {
		return nil
	}
	if many.details.Len() > mostDetails {
		fmt.Fprintf(&many.details, "\nTo see what is wrong with %s, validate it alone.\n", human.Line(path))
		return nil
	}
	many.details.WriteString("\n")
	return printVerdict(&many.details, path, verdict)
}

func (v validation) addUnread(many *manyVerdicts, path string, f cli.Failure) error {
	many.results["not judged"]++
	many.worst = max(many.worst, f.Code)
	view := f.View()
	if v.asJSON {
		return cli.WriteJSONLine(v.out, bagView{Bag: path, FailureView: &view})
	}
	many.rows = append(many.rows, []string{human.Line(path), "not judged", "-", "-", human.Line(view.Error)})
	fmt.Fprintf(&many.details, "\n%s is not judged: %s\nNext: %s\n", human.Line(path), human.Line(view.Error), view.Next)
	return nil
}

// print writes the table, the details and the sums. Bags that were not reached are
// counted as not judged.
func (v validation) print(many *manyVerdicts, bags int) error {
	if len(many.rows) > 0 {
		if err := cli.WriteNoted(v.out, []string{"BAG", "RESULT", "ERRORS", "WARNINGS", "FIRST FINDING"}, many.rows); err != nil {
			return err
		}
	}
	many.results["not judged"] += bags - len(many.rows)
	var sums []string
	for _, result := range []string{"valid", "not valid", "not verified", "not judged"} {
		if n := many.results[result]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, result))
		}
	}
	if _, err := many.details.WriteTo(v.out); err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	_, err := fmt.Fprintf(v.out, "\n%s: %s\n", human.Count(bags, "bag", "bags"), strings.Join(sums, ", "))
	if err != nil {
		return fmt.Errorf("write the sums: %w", err)
	}
	return nil
}
