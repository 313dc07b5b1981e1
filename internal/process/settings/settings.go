// Package settings reads what Farol is configured by: the environment, and nothing
// else.
//
// A block is a struct of settings. A command has a struct of the blocks that it needs, so that
// none asks for what it does not use, and [Load] fills it. The tags of a field
// are read by caarlos0/env, by this package and by the table in docs/configuration.md:
// doc says what the setting means, is what its value may be, oneof lists the values,
// min is the least number, old its name in the predecessor. Load reports all that is
// missing or wrong at once. Secrets are of the type storage.Secret, which prints as
// three asterisks.
package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/storage"
)

// Load reads from an environment what a command needs. The error has everything
// that is wrong with it, and a name that no command reads is wrong too. What c has already, such
// as the value of a flag, stays.
func Load[T any](environ map[string]string, c T) (T, error) {
	s := reader{environ: environ}
	s.read(&c)
	s.unknown()
	return c, s.err()
}

// reader reads an environment and gathers all that is wrong with it, so that one run
// reports every mistake.
type reader struct {
	environ  map[string]string
	problems []problem
}

type problem struct{ name, text string }

// wrong notes what is wrong with a setting. The text must not have a secret.
func (s *reader) wrong(name, text string) {
	if !s.has(name, name+fileSuffix) { // one mistake, one line
		s.problems = append(s.problems, problem{name, storage.Redact(text)})
	}
}

func (s *reader) has(names ...string) bool {
	return slices.ContainsFunc(s.problems, func(p problem) bool { return slices.Contains(names, p.name) })
}

// err is nil if nothing is wrong.
func (s *reader) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	var b strings.Builder
	if len(s.problems) == 1 {
		b.WriteString("1 setting is missing or wrong:")
	} else {
		fmt.Fprintf(&b, "%d settings are missing or wrong:", len(s.problems))
	}
	for _, p := range s.problems {
		fmt.Fprintf(&b, "\n  %s %s", p.name, p.text)
	}
	return errors.New(b.String())
}

// checked is a block, or a struct of blocks, that knows what belongs together in it.
type checked interface{ check(s *reader) }

// read fills what block points to: a block, or a struct of blocks in the order of its fields. One
// to which a pointer is nil is left out.
func (s *reader) read(block any) {
	v := reflect.ValueOf(block).Elem()
	s.readBlock("", block)
	for i := range v.NumField() {
		f := reflect.Indirect(v.Field(i))
		if f.Kind() == reflect.Struct && f.CanSet() && f.Type().PkgPath() == v.Type().PkgPath() {
			s.read(f.Addr().Interface())
		}
	}
	if c, ok := block.(checked); ok {
		c.check(s)
	}
}

// readBlock fills the settings of the struct that block points to. Each setting's name begins
// with prefix.
func (s *reader) readBlock(prefix string, block any) {
	fields := FieldsOf(prefix, block)
	if len(fields) == 0 {
		return
	}
	environ := make(map[string]string, len(fields))
	for i, f := range fields {
		text, from := s.given(s.usedName(f), f.allowed(), f.secret())
		if fields[i].from = from; text != "" && f.Value.IsZero() { // an empty variable counts as not set
			environ[f.Name] = text
		}
	}
	err := env.ParseWithOptions(block, env.Options{Environment: environ, Prefix: prefix})
	var all env.AggregateError
	if err != nil && !errors.As(err, &all) {
		all.Errors = []error{err}
	}
	for _, err := range all.Errors {
		s.parseError(fields, environ, err)
	}
	for _, f := range fields {
		if text := f.check(); text != "" {
			s.wrong(f.from, text)
		}
	}
}

func (s *reader) parseError(fields []Field, environ map[string]string, err error) {
	var unset env.EnvVarIsNotSetError
	var empty env.EmptyEnvVarError
	var parse env.ParseError
	for _, f := range fields {
		switch {
		case errors.As(err, &unset) && unset.Key == f.Name, errors.As(err, &empty) && empty.Key == f.Name:
			s.wrong(f.Name, "is not set; it must be "+f.allowed())
			return
		case errors.As(err, &parse) && parse.Name == f.goName:
			s.wrong(f.from, fmt.Sprintf("is %q; it must be %s", environ[f.Name], f.allowed()))
			return
		}
	}
	s.wrong("The environment", "cannot be read: "+err.Error())
}

// number reads a whole number that need not be there.
func (s *reader) number(name string) (int, bool) {
	return positive(s, name, "a whole number from 1 on", strconv.Atoi)
}

// duration reads a time that need not be there.
func (s *reader) duration(name string) (time.Duration, bool) {
	return positive(s, name, aDuration, time.ParseDuration)
}

func positive[T int | time.Duration](s *reader, name, allowed string, parse func(string) (T, error)) (T, bool) {
	text, from := s.given(name, allowed, false)
	if text == "" {
		return 0, false
	}
	v, err := parse(text)
	if err != nil || v <= 0 {
		s.wrong(from, fmt.Sprintf("is %q; it must be %s", text, allowed))
		return 0, false
	}
	return v, true
}

// aDuration says what a setting that is a time may be.
const aDuration = "a duration such as 500ms, 30s or 5m"

// Size is a number of bytes, which is written as 1048576, 64MiB or 1GiB.
type Size int64

// UnmarshalText is for the library that reads the environment.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := human.ParseBytes(string(text))
	*s = Size(n)
	return err
}

// String writes a size as briefly as it can be read.
func (s Size) String() string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if by := Size(1) << (10 * (4 - i)); s >= by && s%by == 0 {
			return strconv.FormatInt(int64(s/by), 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Field is a setting that a block declares.
type Field struct {
	Name, old, goName  string
	from               string // the variable that has the value
	byDefault, doc, is string
	required           bool
	least              int64
	oneOf              []string
	Value              reflect.Value
}

// FieldsOf lists the settings of the struct that block points to.
func FieldsOf(prefix string, block any) []Field {
	v := reflect.ValueOf(block).Elem()
	var fields []Field
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("env"), ",")
		if name == "" {
			continue
		}
		f := Field{
			Name: prefix + name, old: sf.Tag.Get("old"), goName: sf.Name,
			byDefault: sf.Tag.Get("envDefault"), doc: sf.Tag.Get("doc"), is: sf.Tag.Get("is"),
			required: strings.Contains(options, "required"), least: 1, oneOf: strings.Fields(sf.Tag.Get("oneof")),
			Value: v.Field(i),
		}
		if least, err := strconv.ParseInt(sf.Tag.Get("min"), 10, 64); err == nil {
			f.least = least
		}
		fields = append(fields, f)
	}
	return fields
}

// usedName is the name under which a setting is set: the old one, if only that is.
func (s *reader) usedName(f Field) string {
	if f.old != "" && !s.isSet(f.Name) && s.isSet(f.old) {
		return f.old
	}
	return f.Name
}

// secret reports whether the value must not be shown.
func (f Field) secret() bool {
	_, secret := f.Value.Interface().(storage.Secret)
	return secret || strings.HasSuffix(f.Name, "ACCESS_KEY_ID") // which is handed out with one
}

// allowed says what the setting may be.
func (f Field) allowed() string {
	switch f.Value.Interface().(type) {
	case time.Duration:
		return aDuration
	case Size:
		return fmt.Sprintf("a number of bytes such as 1048576, 64MiB or 1GiB, of at least %v", Size(f.least))
	case int:
		return fmt.Sprintf("a whole number from %d on", f.least)
	}
	return f.is
}

// check says what is wrong with a value that could be read; "" if nothing is.
func (f Field) check() string {
	switch v := f.Value.Interface().(type) {
	case time.Duration:
		if v < 0 || v == 0 && f.least > 0 {
			return fmt.Sprintf("is %v; it must be longer, such as %s", v, f.byDefault)
		}
	case Size:
		if v < Size(f.least) {
			return fmt.Sprintf("is %v; it must be %s", v, f.allowed())
		}
	case int:
		if n := f.Value.Int(); n < f.least {
			return fmt.Sprintf("is %d; it must be %s", n, f.allowed())
		}
	case string:
		if v != "" && !f.permits(v) {
			return fmt.Sprintf("is %q; it must be %s", v, f.is)
		}
	case storage.Secret: // the reader of the block checks it
	}
	return ""
}

func (f Field) permits(v string) bool {
	switch {
	case len(f.oneOf) > 0:
		return slices.Contains(f.oneOf, v)
	case f.is == "host:port":
		_, port, err := net.SplitHostPort(v)
		return err == nil && port != ""
	case f.is == "an http(s) URL":
		u, err := url.Parse(v)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == ""
	case f.is == "a bucket name": // whether it is a good one is for the provider to say
		return !strings.ContainsAny(v, "/?#% ")
	case f.is == "the path of a file":
		info, err := os.Stat(v)
		return err == nil && info.Mode().IsRegular()
	}
	return true
}

// allowed says what the field of a block may be, by the field's name in Go.
func allowed(block any, goName string) string {
	for _, f := range FieldsOf("", block) {
		if f.goName == goName {
			return f.allowed()
		}
	}
	return ""
}
