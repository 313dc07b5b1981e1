package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/farol-preservation/farol/internal/human"
)

// Rows are the rows of a table with one for each element.
func Rows[T any](list []T, row func(T) []string) (rows [][]string) {
	for _, v := range list {
		rows = append(rows, row(v))
	}
	return rows
}

// WriteList writes a table, or says that there is nothing: a header alone looks like an
// answer that was lost.
func WriteList(w io.Writer, what string, header []string, rows [][]string) error {
	if len(rows) == 0 {
		return NoneOf(w, what)
	}
	return WriteTable(w, header, rows)
}

// NoneOf says that nothing was found.
func NoneOf(w io.Writer, what string) error {
	if _, err := fmt.Fprintf(w, "No %s.\n", what); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// WriteTable writes columns under a header. Where the width is known the last column
// is cut at the end of the line, elsewhere nothing is.
func WriteTable(w io.Writer, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	return writeRows(w, all, widthsOf(all), TerminalWidth(w))
}

// leastNote is how much of a note has to be visible next to the other columns.
const leastNote = 40

// WriteNoted is WriteTable for rows that end with a note of any length. Where the line
// has no space for enough of it, the note gets a line of its own and the widest
// of the other columns are cut.
func WriteNoted(w io.Writer, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	widths, most := widthsOf(all), TerminalWidth(w)
	last := len(header) - 1
	if most == 0 || total(widths[:last])+2*last+min(widths[last], leastNote) <= most {
		return writeRows(w, all, widths, most)
	}
	narrow(widths[:last], header, most)
	for _, row := range all {
		cut := make([]string, last)
		for i := range cut {
			cut[i] = human.Shorten(row[i], widths[i])
		}
		if err := writeRows(w, [][]string{cut}, widths[:last], most); err != nil {
			return err
		}
		if row[last] == "" {
			continue
		}
		const indent = "    "
		if _, err := fmt.Fprintln(w, indent+human.Shorten(row[last], max(most-len(indent), 1))); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

// narrow takes from the widest columns until a line of them fits, but leaves each the
// width of its header.
func narrow(widths []int, header []string, most int) {
	for total(widths)+2*(len(widths)-1) > most {
		widest := -1
		for i, n := range widths {
			if n > utf8.RuneCountInString(header[i]) && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func total(widths []int) (n int) {
	for _, w := range widths {
		n += w
	}
	return n
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// writeRows writes cells in columns of these widths; most is 0 for lines of any length.
func writeRows(w io.Writer, rows [][]string, widths []int, most int) error {
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		text := strings.TrimRight(line.String(), " ")
		if most > 0 {
			text = human.Shorten(text, most)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

// TerminalWidth is 0 if the width of w's lines is not known. COLUMNS, where a user
// has exported it, goes before what the terminal says, as it does for ps and ls.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		return width
	}
	return 0
}

// CutTo is [human.Shorten] for a width that may not be known.
func CutTo(s string, width int) string {
	if width <= 0 {
		return s
	}
	return human.Shorten(s, width)
}

// Say writes a sentence, broken between words where the line ends.
func Say(w io.Writer, format string, args ...any) {
	text, most := fmt.Sprintf(format, args...), TerminalWidth(w)
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(w, strings.Join(human.Wrap(line, most), "\n"))
	}
}

// IsTerminal reports whether a person watches.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
