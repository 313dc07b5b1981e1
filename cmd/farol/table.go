package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// writeList writes a table of what was found, or says that there is nothing: a
// header alone looks like an answer that was lost.
func writeList(w io.Writer, what string, header []string, rows [][]string) error {
	if len(rows) == 0 {
		return noneOf(w, what)
	}
	return writeTable(w, header, rows)
}

func noneOf(w io.Writer, what string) error {
	if _, err := fmt.Fprintf(w, "No %s.\n", what); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// writeTable writes columns under a header. Where the width is known the last column
// is cut at the end of the line, elsewhere nothing is.
func writeTable(w io.Writer, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	return writeRows(w, all, widthsOf(all), terminalWidth(w))
}

// leastNote is how much of a note has to be seen beside the other columns.
const leastNote = 40

// writeNoted is writeTable for rows that end with a note of any length. Where the line
// has no room for enough of it, the note gets a line of its own and the widest
// of the other columns are cut.
func writeNoted(w io.Writer, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	widths, most := widthsOf(all), terminalWidth(w)
	last := len(header) - 1
	if most == 0 || total(widths[:last])+2*last+min(widths[last], leastNote) <= most {
		return writeRows(w, all, widths, most)
	}
	narrow(widths[:last], header, most)
	for _, row := range all {
		cut := make([]string, last)
		for i := range cut {
			cut[i] = shorten(row[i], widths[i])
		}
		if err := writeRows(w, [][]string{cut}, widths[:last], most); err != nil {
			return err
		}
		if row[last] == "" {
			continue
		}
		const indent = "    "
		if _, err := fmt.Fprintln(w, indent+shorten(row[last], max(most-len(indent), 1))); err != nil {
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
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		text := strings.TrimRight(line.String(), " ")
		if most > 0 {
			text = shorten(text, most)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

// terminalWidth is 0 if the width of w's lines is not known. COLUMNS, where a user
// has exported it, goes before what the terminal says, as it does for ps and ls.
func terminalWidth(w io.Writer) int {
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

// cutTo is shorten for a width that may not be known.
func cutTo(s string, width int) string {
	if width <= 0 {
		return s
	}
	return shorten(s, width)
}

// say writes a sentence, broken between words where the line ends.
func say(w io.Writer, format string, args ...any) {
	text, most := fmt.Sprintf(format, args...), terminalWidth(w)
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(w, strings.Join(wrap(line, most), "\n"))
	}
}

// wrap breaks a line between words; a word that is longer stays whole. most is 0 for
// lines of any length.
func wrap(line string, most int) (lines []string) {
	if most <= 0 || utf8.RuneCountInString(line) <= most {
		return []string{line}
	}
	current := ""
	for word := range strings.FieldsSeq(line) {
		switch {
		case current == "":
			current = word
		case utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) <= most:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	return append(lines, current)
}
