// Package op makes commands of operations of the REST API: their flags are parameters of a
// request, and what is answered is printed, for people or as JSON.
package op

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/record"
)

// Command is what people read of a command, and what it takes.
type Command struct {
	Use, Short, Long, Example string

	Arg    string // what its one argument is, such as "item by its ID"; "": it has none
	Param  string // of the query or the body, that the argument is; "": it is sent in another way
	Number string // how an argument that is an ID is called, such as "an item"
	Where  string // where IDs are found, such as "`farol item list` lists the items"
	Flags  []Flag
	Args   cobra.PositionalArgs // nil: Arg says what it takes
	Asks   bool                 // it has --dry-run and --yes, and may ask before it does something
	Within time.Duration        // 0: a minute; below 0: without a bound
	Here   bool                 // it works with the database only, and not through a server

	// Check refuses what no server need be asked for; nil: nothing.
	Check func(*Call) error
	// Failed adds the next step to an error; nil: it is known.
	Failed func(error) error
}

// Kind is what a flag takes.
type Kind int

// The kinds of flags. What is empty, 0 or false is not sent, unless it was given.
const (
	Text Kind = iota
	Reason
	Number
	Truth
	Since
	Stage
	Seconds // a duration
	Person  // the e-mail of who has decided, whose decision a command of the archive enters
	Paper   // where and when that person has
	Exact   // a text that is sent as it was given, if it is empty too
	Texts   // several texts, with commas between them
	Each    // a text of each time that it is given
)

// Flag is a flag of a command.
type Flag struct {
	Name, Help  string
	Param       string // of the query or the body; "": the command sends it in its own way
	Kind        Kind
	Default     any             // nil: none
	Among       func() []string // the only values; nil: any
	Quiet       bool            // Help does not list them
	Missing     string          // what to do where it is missing, unless a server knows; "": it may be
	Least, Most int             // of a number that has bounds
	Alias       string          // another name of the same flag
	Old         string          // why the other name is not to be used any more; "": it may be
}

// Call is a command that runs.
type Call struct {
	*remote.Server

	Cmd    *cobra.Command
	Care   cli.Caution // of a command that asks
	Args   []string
	Arg    string // the only one of Args, or all of them with spaces between
	ID     int64  // that Arg is
	JSON   bool
	values map[string]any // of the flags with a value, by their names
	flags  []Flag
	param  string
}

// Make makes a command that does something with a server.
func (c Command) Make(run func(context.Context, *Call) error) *cobra.Command {
	return c.Alone(func(call *Call) error {
		if c.Here {
			if err := connect.Refuse(call.Cmd.Context(), "this command"); err != nil {
				return err
			}
		}
		err := remote.DoFor(call.Cmd, cmp.Or(c.Within, time.Minute), func(ctx context.Context, s *remote.Server) error {
			if err := call.ask(ctx, s); err != nil {
				return err
			}
			return run(ctx, call)
		})
		if err != nil && c.Failed != nil {
			err = c.Failed(err)
		}
		return err
	})
}

// Alone makes a command that does something by itself: it opens what it needs.
func (c Command) Alone(run func(*Call) error) *cobra.Command {
	call := &Call{values: map[string]any{}, flags: c.Flags, param: c.Param}
	cmd := &cobra.Command{Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Args: c.Args}
	switch {
	case c.Args != nil:
	case c.Arg != "":
		cmd.Args = cli.OneArg(c.Arg)
	default:
		cmd.Args = cobra.NoArgs
	}
	raw := map[string]any{}
	for _, f := range c.Flags {
		raw[f.Name] = f.add(cmd)
	}
	if c.Asks {
		call.Care.Flags(cmd)
	}
	cli.JSONFlag(cmd, &call.JSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		call.Cmd, call.Args, call.Arg = cmd, args, strings.Join(args, " ")
		if c.Number != "" {
			if call.ID, err = cli.ParseID(call.Arg, c.Number, c.Where); err != nil {
				return err
			}
		}
		for _, f := range c.Flags {
			if err := f.read(call, raw[f.Name]); err != nil {
				return err
			}
		}
		if c.Check != nil {
			if err := c.Check(call); err != nil {
				return err
			}
		}
		return run(call)
	}
	return cmd
}

// ask has a server answer the call, for the person that the flags name, and stages spelt as it
// does.
func (c *Call) ask(ctx context.Context, s *remote.Server) (err error) {
	if c.Server, err = s.For(ctx, "--by", c.of(Person), c.of(Paper)); err != nil {
		return err
	}
	for _, f := range c.flags {
		if v, given := c.values[f.Name]; given && f.Kind == Stage {
			name, err := values.Stage(ctx, s, "--"+f.Name, record.Stage(v.(string))) //nolint:errcheck,forcetypeassert // it is a text
			if err != nil {
				return err
			}
			c.values[f.Name] = string(name)
		}
	}
	return nil
}

// of is the value of the flag of a kind; "": it was not given.
func (c *Call) of(k Kind) string {
	for _, f := range c.flags {
		if f.Kind == k && c.Text(f.Name) != "" {
			return c.Text(f.Name)
		}
	}
	return ""
}

func (f Flag) add(cmd *cobra.Command) any {
	flags, help := cmd.Flags(), f.Help
	if f.Among != nil && !f.Quiet {
		help += ": " + strings.Join(f.Among(), ", ")
	}
	var to any
	switch f.Kind {
	case Number:
		n, _ := f.Default.(int)
		to = flags.Int(f.Name, n, help)
	case Truth:
		to = flags.Bool(f.Name, false, help)
	case Seconds:
		d, _ := f.Default.(time.Duration)
		to = flags.Duration(f.Name, d, help)
	case Texts:
		to = flags.StringSlice(f.Name, nil, help)
	case Each:
		to = flags.StringArray(f.Name, nil, help)
	case Reason:
		text := ""
		cli.ReasonFlag(cmd, &text, help)
		to = &text
	case Text, Since, Stage, Person, Paper, Exact:
		text, _ := f.Default.(string)
		at := flags.String(f.Name, text, help)
		to = at
		if f.Alias != "" {
			flags.StringVar(at, f.Alias, text, "the same as --"+f.Name)
			flags.Lookup(f.Alias).Hidden, flags.Lookup(f.Alias).Deprecated = f.Old != "", f.Old
		}
	}
	if f.Among != nil {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cli.Complete(cli.Constant(f.Among), false)) // it fails only for a flag that is not there
	}
	return to
}

// read takes the value of a flag.
func (f Flag) read(c *Call, raw any) (err error) {
	given := c.Cmd.Flags().Changed(f.Name) || f.Alias != "" && c.Cmd.Flags().Changed(f.Alias) || f.Default != nil
	switch to := raw.(type) {
	case *int:
		if !given {
			return nil
		}
		c.values[f.Name] = *to
		if f.Least != f.Most {
			return cli.InRange("--"+f.Name, *to, f.Least, f.Most)
		}
	case *bool:
		if *to {
			c.values[f.Name] = true
		}
	case *time.Duration:
		if given {
			c.values[f.Name] = *to
		}
	case *[]string:
		if list := slices.DeleteFunc(*to, func(text string) bool { return f.Kind == Texts && text == "" }); len(list) > 0 {
			c.values[f.Name] = list
		}
	case *string:
		return f.readText(c, *to, given)
	}
	return err
}

func (f Flag) readText(c *Call, text string, given bool) (err error) {
	if f.Among != nil {
		if text, err = cli.OneOf("--"+f.Name, text, f.Among()); err != nil {
			return err
		}
	}
	switch {
	case f.Missing != "" && strings.TrimSpace(text) == "" && remote.From(c.Cmd.Context()) == nil:
		return cli.Usage(fmt.Errorf("--%s is missing", f.Name), f.Missing)
	case text == "" && (f.Kind != Exact || !given):
		return nil
	}
	c.values[f.Name] = text
	if f.Kind == Since {
		c.values[f.Name], err = cli.SinceOf(text, time.Now())
	}
	return err
}

// Text is the value of a flag; "": it was not given.
func (c *Call) Text(flag string) string {
	v, _ := c.values[flag].(string)
	return v
}

// Texts is the value of a flag of several; nil: it was not given.
func (c *Call) Texts(flag string) []string {
	v, _ := c.values[flag].([]string)
	return v
}

// Number is the value of a flag; 0: it was not given.
func (c *Call) Number(flag string) int {
	v, _ := c.values[flag].(int)
	return v
}

// Duration is the value of a flag; 0: it was not given.
func (c *Call) Duration(flag string) time.Duration {
	v, _ := c.values[flag].(time.Duration)
	return v
}

// Given reports whether a flag has a value.
func (c *Call) Given(flag string) bool { return c.values[flag] != nil }

// Query are the flags as the parameters of a list.
func (c *Call) Query() url.Values {
	q := url.Values{}
	for name, v := range c.Body() {
		switch v := v.(type) {
		case string:
			q.Set(name, v)
		case []string:
			q[name] = v
		case int:
			if v != 0 { // which is none
				q.Set(name, strconv.Itoa(v))
			}
		case bool:
			q.Set(name, strconv.FormatBool(v))
		case time.Time:
			q.Set(name, v.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// Body are the flags as the body of a change.
func (c *Call) Body() map[string]any {
	body := map[string]any{}
	if c.param != "" && c.Arg != "" {
		body[c.param] = c.Arg
	}
	for _, f := range c.flags {
		v, given := c.values[f.Name]
		if d, ok := v.(time.Duration); ok {
			v = d.Seconds()
		}
		if given && f.Param != "" {
			body[f.Param] = v
		}
	}
	return body
}

// Path is a path of the API in which {} stands for the argument.
func (c *Call) Path(path string) string { return strings.ReplaceAll(path, "{}", url.PathEscape(c.Arg)) }

// KnownInstitution refuses --institution with an identifier that no institution has.
func KnownInstitution(ctx context.Context, c *Call) error {
	return values.CheckInstitution(ctx, c.Server, c.Text("institution"))
}

// List is a list that a command shows.
type List[T any] struct {
	Path   string
	What   string // its records, in the plural
	Header []string
	Row    func(T) []string
	Print  func(io.Writer, []T) error // instead of Header and Row; nil: these
	Before func(T) int64              // the ID of a record, for the page after it
	Next   func(*Call, T) string      // the flag for the page after a record, where that is not --before
	// Read reads up to n records; nil: they are those of Path.
	Read func(ctx context.Context, c *Call, n int) ([]T, error)
	// Empty says what may be wrong where nothing is found; nil: nothing.
	Empty func(context.Context, *Call) error
}

// Command makes the command that shows the list.
func (l List[T]) Command(c Command) *cobra.Command {
	c.Flags = append(c.Flags, Flag{Name: "limit", Kind: Number, Default: 50, Least: 1, Most: 10000, Help: "how many at most"})
	if l.Before != nil {
		c.Flags = append(c.Flags, Flag{Name: "before", Param: "before", Kind: Number, Help: "only those with a lower ID, for the next page"})
		check := c.Check
		c.Check = func(call *Call) error {
			if err := cli.CheckPage(call.Number("limit"), int64(call.Number("before")), 0); err != nil || check == nil {
				return err
			}
			return check(call)
		}
	}
	return c.Make(func(ctx context.Context, call *Call) error {
		limit := call.Number("limit")
		list, err := l.read(ctx, call, limit)
		if err == nil && len(list) == 0 && l.Empty != nil {
			err = l.Empty(ctx, call)
		}
		if err != nil {
			return err
		}
		if l.Before == nil && l.Next == nil {
			return cli.Print(call.Cmd, call.JSON, list, l.write)
		}
		return cli.PrintPage(call.Cmd, call.JSON, list, limit, l.write, func(last T) string {
			if l.Next != nil {
				return l.Next(call, last)
			}
			return "--before " + strconv.FormatInt(l.Before(last), 10)
		})
	})
}

func (l List[T]) read(ctx context.Context, c *Call, n int) ([]T, error) {
	if l.Read != nil {
		return l.Read(ctx, c, n)
	}
	return remote.List[T](ctx, c.Server, c.Path(l.Path), c.Query(), n)
}

// All makes the command that shows a list without pages.
func (l List[T]) All(c Command) *cobra.Command {
	return c.Make(func(ctx context.Context, call *Call) error {
		v, err := remote.Get[struct{ Items []T }](ctx, call.Server, call.Path(l.Path), call.Query())
		if err == nil && len(v.Items) == 0 && l.Empty != nil {
			err = l.Empty(ctx, call)
		}
		if err != nil {
			return err
		}
		return l.Write(call, v.Items)
	})
}

// Write prints records of the list that a command has in another way.
func (l List[T]) Write(c *Call, list []T) error { return cli.Print(c.Cmd, c.JSON, list, l.write) }

func (l List[T]) write(w io.Writer, list []T) error {
	if l.Print != nil {
		return l.Print(w, list)
	}
	return cli.WriteList(w, l.What, l.Header, cli.Rows(list, l.Row))
}

// Show makes a command that shows one record.
func Show[T any](c Command, path string, write func(io.Writer, T) error) *cobra.Command {
	return c.Make(func(ctx context.Context, call *Call) error {
		v, err := remote.Get[T](ctx, call.Server, call.Path(path), call.Query())
		if err != nil {
			return err
		}
		return cli.Print(call.Cmd, call.JSON, v, write)
	})
}

// Change makes a command that changes something and says what came of it. next is what to do
// where it is refused; "": it is known.
func Change[T any](c Command, method, path, next string, say func(T) string) *cobra.Command {
	return c.Make(func(ctx context.Context, call *Call) error {
		var body any
		if method != http.MethodDelete {
			body = call.Body()
		}
		var v T
		if _, err := call.Do(ctx, client.Call{Method: method, Path: call.Path(path), Body: body}, &v); err != nil {
			return remote.Next(err, strings.ReplaceAll(next, "{}", call.Arg))
		}
		return cli.Printf(call.Cmd, call.JSON, v, "%s", say(v))
	})
}
