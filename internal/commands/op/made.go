package op

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/ops"
)

// Telling is how answers of one type are told to people.
type Telling struct {
	of   reflect.Type
	say  func(any) string
	next string
}

// Tell tells answers whose body is a T by a sentence. next is what to do where such an operation
// is refused, in which {} is the first argument; "": it is known.
func Tell[T any](say func(T) string, next string) Telling {
	return Telling{reflect.TypeFor[T](), func(v any) string {
		answer, _ := v.(T)
		return say(answer)
	}, next}
}

// Add adds to root the commands of operations whose rows name one. Answers that are not told in
// another way are told as their fields.
func Add(root *cobra.Command, rows []ops.Row, tell ...Telling) {
	for _, row := range rows {
		if words := row.Words(); len(words) > 0 {
			group, _, err := root.Find(words[:len(words)-1])
			if err != nil || group == root {
				panic(fmt.Sprintf("operation %s: there is no group of commands for `farol %s`", row.ID, row.Command))
			}
			m := made{Row: row, group: group.Name()}
			if i := slices.IndexFunc(tell, func(t Telling) bool { return t.of == row.Answer }); i >= 0 {
				m.told = tell[i]
			}
			group.AddCommand(m.command())
		}
	}
}

// made is a command that is made of a row.
type made struct {
	ops.Row

	group string
	told  Telling // without its function: its fields are told
}

func (m made) command() *cobra.Command {
	names, words := m.Arguments(), strings.Fields(m.Command)
	arguments := words[len(m.Words()):]
	c := Command{Use: strings.Join(words[len(m.Words())-1:], " "), Short: m.Summary, Long: m.long(), Example: m.examples()}
	for _, f := range m.Fields {
		if !slices.Contains(names, f.Name) {
			c.Flags = append(c.Flags, flagOf(f))
		}
	}
	cmd := c.Make(m.run)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != len(arguments) {
			return fmt.Errorf("it takes %s; there are %d arguments", strings.Join(arguments, " and "), len(args))
		}
		return nil
	}
	return cmd
}

// long is the help: the summary and what the row tells beyond it, in lines of a terminal.
func (m made) long() string {
	lines := human.Wrap(m.Summary+". "+strings.ReplaceAll(m.About, "`", ""), helpWidth)
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

const helpWidth = 80

// examples are a call with what is needed, and one with all flags that have an example.
func (m made) examples() string {
	line, more := "  farol "+strings.Join(m.Words(), " "), ""
	for _, name := range m.Arguments() {
		i := slices.IndexFunc(m.Fields, func(f ops.Field) bool { return f.Name == name })
		line += " " + inShell(m.Fields[i].Sample())
	}
	for _, f := range m.Fields {
		given := " --" + flagName(f.Name)
		if !f.Truth() {
			given += " " + inShell(f.Sample())
		}
		switch {
		case slices.Contains(m.Arguments(), f.Name):
		case f.Required:
			line += given
		case f.Example != "":
			more += given
		}
	}
	if more != "" {
		return line + "\n" + line + more
	}
	return line + "\n" + line + " --json"
}

// inShell quotes a text that a shell would read as several.
func inShell(text string) string {
	if strings.ContainsAny(text, " '\"$`\\*?[]{}()<>|&;#~") {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}

func flagName(field string) string { return strings.NewReplacer("_", "-", ".", "-").Replace(field) }

// flagOf is the flag for a field.
func flagOf(f ops.Field) Flag {
	out := Flag{Name: flagName(f.Name), Param: f.Name, Help: lowered(f.Doc)}
	switch {
	case f.Name == "reason":
		out.Kind = Reason
	case f.Type == reflect.TypeFor[record.Stage]():
		out.Kind = Stage
	case f.Type == reflect.TypeFor[time.Time]():
		out.Kind = Since
	case f.Number():
		out.Kind = Number
		out.Least, _ = strconv.Atoi(f.Least)
		out.Most, _ = strconv.Atoi(f.Most)
	case f.Truth():
		out.Kind = Truth
	}
	if len(f.Values) > 0 {
		out.Among = func() []string { return f.Values }
	}
	if f.Required {
		out.Missing = "give it: " + lowered(f.Doc)
	}
	return out
}

// lowered begins a description with a small letter, as flags have it.
func lowered(text string) string {
	if len(text) > 1 && strings.ToLower(text[1:2]) == text[1:2] {
		return strings.ToLower(text[:1]) + text[1:]
	}
	return text
}

// run sends the request and tells the answer.
func (m made) run(ctx context.Context, call *Call) error {
	values := call.Body()
	for i, name := range m.Arguments() {
		values[name] = call.Cmd.Flags().Arg(i)
	}
	path, query, body := m.Path, url.Values{}, map[string]any{}
	for _, f := range m.Fields {
		v, given := values[f.Name]
		if !given {
			continue
		}
		v, err := m.value(f, v)
		if err != nil {
			return err
		}
		switch f.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+f.Name+"}", url.PathEscape(fmt.Sprint(v)))
		case "query":
			query.Set(f.Name, fmt.Sprint(v))
		default:
			put(body, f.Name, v)
		}
	}
	request := client.Call{Method: m.Method, Path: strings.TrimPrefix(path, "/api/v1/"), Query: query, NoKey: m.Secret}
	if m.Changes() && m.Method != http.MethodDelete {
		request.Body = body
	}
	if m.Answer == nil {
		m.Answer = reflect.TypeFor[struct{}]()
	}
	answer := reflect.New(m.Answer)
	if _, err := call.Do(ctx, request, answer.Interface()); err != nil {
		return remote.Next(err, strings.ReplaceAll(m.told.next, "{}", call.Cmd.Flags().Arg(0)))
	}
	return cli.Print(call.Cmd, call.JSON, answer.Elem().Interface(), m.tell)
}

// value is an argument as its field takes it.
func (m made) value(f ops.Field, v any) (any, error) {
	text, is := v.(string)
	switch {
	case !is || !f.Number():
		if is && f.Type.Kind() == reflect.Slice {
			return strings.Split(text, ","), nil
		}
		return v, nil
	case f.Name == "id":
		return cli.ParseID(text, article(m.group)+m.group, "`farol "+m.group+" list` lists the "+m.group+"s")
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("%s is %q, and must be a whole number", strings.ToUpper(f.Name), text), "see `"+strings.Join(m.Words(), " ")+" --help`")
	}
	return n, cli.InRange(strings.ToUpper(f.Name), n, bound(f.Least, -1<<31), bound(f.Most, 1<<31-1))
}

func bound(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return otherwise
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an "
	}
	return "a "
}

// put sets a value by its name; that of a field within another one has a dot.
func put(body map[string]any, name string, v any) {
	name, rest, deeper := strings.Cut(name, ".")
	if !deeper {
		body[name] = v
		return
	}
	within, ok := body[name].(map[string]any)
	if !ok {
		within = map[string]any{}
		body[name] = within
	}
	put(within, rest, v)
}

// tell writes an answer for people.
func (m made) tell(w io.Writer, v any) error {
	if m.told.say != nil {
		_, err := io.WriteString(w, m.told.say(v))
		return err //nolint:wrapcheck // of the terminal
	}
	text, err := json.Marshal(v)
	var found map[string]any
	if err != nil || json.Unmarshal(text, &found) != nil {
		return err //nolint:wrapcheck // it cannot fail
	}
	if list, is := found["items"].([]any); is {
		var names []string
		if items, found := m.Answer.FieldByName("Items"); found {
			names = fieldsOf(items.Type)
		}
		return tellList(w, list, names)
	}
	for _, name := range fieldsOf(m.Answer) {
		if text := cell(found[name]); text != "" {
			fmt.Fprintf(w, "%s: %s\n", heading(name), text)
		}
	}
	return nil
}

// fieldsOf are the names of the fields of a record, or of those in a list, in their order.
func fieldsOf(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// tellList writes records as a table with the fields that one of them has a value of.
func tellList(w io.Writer, list []any, names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(list, func(v any) bool {
			record, _ := v.(map[string]any)
			return cell(record[name]) != ""
		})
	})
	var header []string
	for _, name := range names {
		header = append(header, strings.ToUpper(heading(name)))
	}
	var rows [][]string
	for _, v := range list {
		record, _ := v.(map[string]any)
		var row []string
		for _, name := range names {
			row = append(row, cell(record[name]))
		}
		rows = append(rows, row)
	}
	return cli.WriteList(w, "records", header, rows)
}

// heading is the name of a field for people.
func heading(name string) string {
	if name == "id" {
		return "ID"
	}
	name = strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(name[:1]) + name[1:]
}

// cell is a value in a line; "": it is none, or too large for one.
func cell(v any) string {
	switch v := v.(type) {
	case string:
		return human.Line(v)
	case float64, bool:
		return fmt.Sprint(v)
	}
	return ""
}
