package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// maxProfile bounds a profile's file in bytes. Real ones have a few thousand.
const maxProfile = 1 << 20

// Load reads a profile in the JSON of the BagIt Profiles specification,
// version 1.4.0 or earlier. Its name in verdicts is its identifier, or name if
// it has none. The error says all that is wrong with it. Members that the
// specification does not know have no effect, and are warned of in each verdict.
func Load(r io.Reader, name string) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("profile %s: %w", name, err)
	case len(data) > maxProfile:
		return nil, fmt.Errorf("profile %s: it has more than %d bytes", name, maxProfile)
	}
	p := &Profile{Name: name}
	if err := p.parse(data); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if id := p.Identifier(); id != "" {
		p.Name = id
	}
	return p, nil
}

func (p *Profile) parse(data []byte) error {
	members, err := object(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return fmt.Errorf("it is not a JSON object: %w", err)
	}
	l := profileParser{members: members, rules: &p.Rules}
	p.Rules.AllowFetch, p.Rules.Serialization = true, "optional"
	l.readAll()
	p.Rules.BagInfo = l.TagRules("Bag-Info", members["Bag-Info"])
	l.otherInfo()
	l.contradictions()
	p.Ignored = l.ignored
	return errors.Join(l.faults...)
}

// profileParser gathers all faults of a profile, since the author of one wants
// to see all of them at once.
type profileParser struct {
	members map[string]json.RawMessage
	rules   *Rules
	faults  []error
	ignored []string
}

func (l *profileParser) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// readAll reads the members that there are, and notes those that have no place.
func (l *profileParser) readAll() {
	places := map[string]any{"Bag-Info": nil, "Other-Info": nil} // which are read apart
	rules := reflect.ValueOf(l.rules).Elem()
	for i := range rules.NumField() {
		if member := rules.Type().Field(i).Tag.Get("member"); member != "" {
			places[member] = rules.Field(i).Addr().Interface()
		}
	}
	for _, member := range slices.Sorted(maps.Keys(l.members)) {
		place, known := places[member]
		switch {
		case !known:
			l.ignored = append(l.ignored, member)
		case place != nil:
			if err := json.Unmarshal(l.members[member], place); err != nil {
				l.fault("%s: %w", member, inWords(err))
			}
		}
	}
}

// inWords says what was expected without the names of our types.
func inWords(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	expected := map[string]string{"bool": "true or false", "string": "a string", "slice": "a list of strings"}[wrong.Type.Kind().String()]
	if expected == "" {
		expected = "an object"
	}
	if wrong.Field != "" {
		return fmt.Errorf("%s: expected %s, found a JSON %s", wrong.Field, expected, wrong.Value)
	}
	return fmt.Errorf("expected %s, found a JSON %s", expected, wrong.Value)
}

// object is a JSON object; nil for null and for nothing.
func object(raw []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if len(raw) == 0 {
		return nil, errors.New("it is empty")
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, inWords(err)
	}
	return members, nil
}

func (l *profileParser) TagRules(where string, raw json.RawMessage) map[string]TagRule {
	if raw == nil {
		return nil
	}
	tags, err := object(raw)
	if err != nil {
		l.fault("%s: %w", where, err)
	}
	rules := map[string]TagRule{}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		at := where + ", tag " + tag
		members, err := object(tags[tag])
		if err != nil {
			l.fault("%s: %w", at, err)
			continue
		}
		var rule TagRule
		if err := json.Unmarshal(tags[tag], &rule); err != nil {
			l.fault("%s: %w", at, inWords(err))
		}
		for _, m := range slices.Sorted(maps.Keys(members)) {
			if !slices.Contains([]string{"required", "recommended", "repeatable", "values", "description"}, m) {
				l.ignored = append(l.ignored, at+", "+m)
			}
		}
		rules[tag] = rule
	}
	return rules
}

// otherInfo takes the rules for the tag files that are read at all.
func (l *profileParser) otherInfo() {
	raw, ok := l.members["Other-Info"]
	if !ok {
		return
	}
	files, err := object(raw)
	if err != nil {
		l.fault("Other-Info: %w", err)
	}
	l.rules.OtherInfo = map[string]map[string]TagRule{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !tagfile.HasTags(file) || file == tagfile.BagInfo {
			l.ignored = append(l.ignored, "Other-Info, "+file)
			continue
		}
		l.rules.OtherInfo[file] = l.TagRules("Other-Info, "+file, files[file])
	}
}

// contradictions are rules that no bag can obey, or that cannot be understood.
func (l *profileParser) contradictions() {
	r := l.rules
	if !slices.Contains([]string{"forbidden", "required", "optional"}, r.Serialization) {
		l.fault("Serialization: expected forbidden, required or optional, found %q", r.Serialization)
	}
	l.within("Manifests", r.ManifestsRequired, func(a string) bool { return r.AllowsManifest(digest.Algorithm(a), false) })
	l.within("Tag-Manifests", r.TagManifestsRequired, func(a string) bool { return r.AllowsManifest(digest.Algorithm(a), true) })
	l.within("Tag-Files", r.TagFilesRequired, r.AllowsTagFile)
	l.within("Payload-Files", r.PayloadFilesRequired, func(file string) bool { return r.AllowsPayloadFile(PayloadPath(file)) })
	if r.FetchRequired && !r.AllowFetch {
		l.fault("Fetch.txt-Required is true, but Allow-Fetch.txt is false")
	}
	if r.DataEmpty && len(r.PayloadFilesRequired) > 1 {
		l.fault("Data-Empty is true, but Payload-Files-Required lists %d files", len(r.PayloadFilesRequired))
	}
}

func (l *profileParser) within(what string, required []string, allows func(string) bool) {
	for _, file := range required {
		if !allows(file) {
			l.fault("%s-Required lists %s, which %s-Allowed does not allow", what, file, what)
		}
	}
}
