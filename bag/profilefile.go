package bag

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxProfile bounds a profile's file in bytes. Real ones have a few thousand.
const maxProfile = 1 << 20

// LoadProfile reads a profile in the JSON of the BagIt Profiles specification,
// version 1.4.0 or earlier. Its name in verdicts is its identifier, or name if
// it has none. The error says all that is wrong with it. Members that the
// specification does not know have no effect, and are warned of in each verdict.
func LoadProfile(r io.Reader, name string) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("profile %s: %w", name, err)
	case len(data) > maxProfile:
		return nil, fmt.Errorf("profile %s: it has more than %d bytes", name, maxProfile)
	}
	p := &Profile{name: name}
	if err := p.parse(data); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if id := p.Identifier(); id != "" {
		p.name = id
	}
	return p, nil
}

func (p *Profile) parse(data []byte) error {
	members, err := object(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return fmt.Errorf("it is not a JSON object: %w", err)
	}
	l := profileParser{members: members, rules: &p.rules}
	p.rules.AllowFetch, p.rules.Serialization = true, "optional"
	l.readAll(map[string]any{
		"BagIt-Profile-Info":     &p.rules.Info,
		"Manifests-Required":     &p.rules.ManifestsRequired,
		"Manifests-Allowed":      &p.rules.ManifestsAllowed,
		"Tag-Manifests-Required": &p.rules.TagManifestsRequired,
		"Tag-Manifests-Allowed":  &p.rules.TagManifestsAllowed,
		"Tag-Files-Required":     &p.rules.TagFilesRequired,
		"Tag-Files-Allowed":      &p.rules.TagFilesAllowed,
		"Payload-Files-Required": &p.rules.PayloadFilesRequired,
		"Payload-Files-Allowed":  &p.rules.PayloadFilesAllowed,
		"Allow-Fetch.txt":        &p.rules.AllowFetch,
		"Fetch.txt-Required":     &p.rules.FetchRequired,
		"Data-Empty":             &p.rules.DataEmpty,
		"Serialization":          &p.rules.Serialization,
		"Accept-Serialization":   &p.rules.AcceptSerialization,
		"Accept-BagIt-Version":   &p.rules.AcceptVersion,
		"Bag-Info":               nil, // below
		"Other-Info":             nil,
	})
	p.rules.BagInfo = l.tagRules("Bag-Info", members["Bag-Info"])
	l.otherInfo()
	l.contradictions()
	p.ignored = l.ignored
	return errors.Join(l.faults...)
}

// profileParser gathers all faults of a profile, since the author of one wants
// to see all of them at once.
type profileParser struct {
	members map[string]json.RawMessage
	rules   *profileRules
	faults  []error
	ignored []string
}

func (l *profileParser) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// readAll reads the members that there are, and notes those that have no place.
func (l *profileParser) readAll(places map[string]any) {
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

func (l *profileParser) tagRules(where string, raw json.RawMessage) map[string]tagRule {
	if raw == nil {
		return nil
	}
	tags, err := object(raw)
	if err != nil {
		l.fault("%s: %w", where, err)
	}
	rules := map[string]tagRule{}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		at := where + ", tag " + tag
		members, err := object(tags[tag])
		if err != nil {
			l.fault("%s: %w", at, err)
			continue
		}
		var rule tagRule
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
	l.rules.OtherInfo = map[string]map[string]tagRule{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !isParsedTagFile(file) || file == bagInfoTxt {
			l.ignored = append(l.ignored, "Other-Info, "+file)
			continue
		}
		l.rules.OtherInfo[file] = l.tagRules("Other-Info, "+file, files[file])
	}
}

// contradictions are rules that no bag can obey, or that cannot be understood.
func (l *profileParser) contradictions() {
	r := l.rules
	if !slices.Contains([]string{"forbidden", "required", "optional"}, r.Serialization) {
		l.fault("Serialization: expected forbidden, required or optional, found %q", r.Serialization)
	}
	l.within("Manifests", r.ManifestsRequired, r.ManifestsAllowed, func(a, b string) bool { return a == b })
	l.within("Tag-Manifests", r.TagManifestsRequired, r.TagManifestsAllowed, func(a, b string) bool { return a == b })
	l.within("Tag-Files", r.TagFilesRequired, r.TagFilesAllowed, func(file, pattern string) bool { return glob(pattern, file) })
	l.within("Payload-Files", r.PayloadFilesRequired, r.PayloadFilesAllowed, func(file, pattern string) bool {
		return globPayload(pattern, payloadPath(file))
	})
	if r.FetchRequired && !r.AllowFetch {
		l.fault("Fetch.txt-Required is true, but Allow-Fetch.txt is false")
	}
	if r.DataEmpty && len(r.PayloadFilesRequired) > 1 {
		l.fault("Data-Empty is true, but Payload-Files-Required lists %d files", len(r.PayloadFilesRequired))
	}
}

func (l *profileParser) within(what string, required, allowed []string, matches func(required, allowed string) bool) {
	if anything(allowed) {
		return
	}
	for _, file := range required {
		if !slices.ContainsFunc(allowed, func(a string) bool { return matches(file, a) }) {
			l.fault("%s-Required lists %s, which %s-Allowed does not allow", what, file, what)
		}
	}
}

// payloadPath is the path in the bag of an entry of Payload-Files-Required,
// which people write with the data/ in front or without.
func payloadPath(entry string) string {
	if strings.HasPrefix(entry, payloadDir) {
		return entry
	}
	return payloadDir + entry
}

// globPayload is glob for a pattern that need not begin with data/.
func globPayload(pattern, path string) bool {
	return glob(pattern, path) || glob(pattern, strings.TrimPrefix(path, payloadDir))
}

// glob says whether the pattern matches the whole name. "*" stands for any
// characters, "?" for one, "[a-z]" and "[!a-z]" for one of a set, as in Python's
// fnmatch, by which the reference validator goes: slashes are nothing special,
// so that "*" alone allows all files. It takes time of the order of the product
// of both lengths at most.
func glob(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, from := -1, 0 // the last "*", and where in the name its successor was tried
	i, k := 0, 0
	for k < len(n) {
		if i < len(p) && p[i] == '*' {
			star, from = i, k
			i++
			continue
		}
		if width, ok := globOne(p[i:], n[k]); ok {
			i += width
			k++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		i, k = star+1, from
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// globOne matches one character with the beginning of a pattern, and says how
// much of the pattern that took.
func globOne(p []rune, c rune) (width int, ok bool) {
	if len(p) == 0 {
		return 0, false
	}
	if p[0] == '?' {
		return 1, true
	}
	set, width := globSet(p)
	if p[0] != '[' || width == 0 {
		return 1, p[0] == c
	}
	not := set[0] == '!'
	if not {
		set = set[1:]
	}
	found := false
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			found = found || set[i] <= c && c <= set[i+2]
			i += 2
			continue
		}
		found = found || set[i] == c
	}
	return width, found != not
}

// globSet is what stands between brackets; a "]" that comes first is part of it.
// The width is zero if nothing closes the bracket, which then stands for itself.
func globSet(p []rune) (set []rune, width int) {
	for i := 1; i < len(p); i++ {
		first := i == 1 || i == 2 && p[1] == '!'
		if p[i] == ']' && !first {
			return p[1:i], i + 1
		}
	}
	return nil, 0
}
