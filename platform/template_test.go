package platform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/awslabs/goformation/v7/schema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// template is a template of CloudFormation with its functions resolved, as they are before
// the service reads the properties.
type template struct {
	Parameters map[string]parameter
	Conditions map[string]any
	Resources  map[string]resource

	given       map[string]string // values of parameters
	holds       bool              // whether each condition does
	used, wrong map[string]bool
}

type parameter struct {
	Type    string `yaml:"Type"`
	Default string `yaml:"Default"`
}

type resource struct {
	Type       string `yaml:"Type"`
	Condition  string `yaml:"Condition"`
	Properties any    `yaml:"-"`
}

// part is a part of a template as it is written.
type part struct {
	resource `yaml:",inline"`

	Written yaml.Node `yaml:"Properties"`
}

// none stands for AWS::NoValue.
type none struct{}

// resolved reads a template whose conditions hold, or do not, with these parameters.
func resolved(t *testing.T, text string, holds bool, parameters ...string) *template {
	t.Helper()
	var whole struct {
		Version     string               `yaml:"AWSTemplateFormatVersion"`
		Description string               `yaml:"Description"`
		Parameters  map[string]parameter `yaml:"Parameters"`
		Conditions  yaml.Node            `yaml:"Conditions"`
		Resources   map[string]part      `yaml:"Resources"`
		Outputs     yaml.Node            `yaml:"Outputs"`
	}
	must.Do(t, yaml.Unmarshal([]byte(text), &whole))
	x := &template{
		Parameters: whole.Parameters, Resources: map[string]resource{}, given: map[string]string{}, holds: holds,
		used: map[string]bool{}, wrong: map[string]bool{},
	}
	for name, p := range x.Parameters {
		x.given[name] = cmp.Or(p.Default, "given")
	}
	for i := 0; i < len(parameters); i += 2 {
		x.given[parameters[i]] = parameters[i+1]
	}
	for name := range whole.Resources {
		x.Resources[name] = resource{}
	}
	x.Conditions, _ = x.value(&whole.Conditions).(map[string]any)
	for name, r := range whole.Resources {
		r.Properties = x.value(&r.Written)
		x.Resources[name] = r.resource
		x.used[r.Condition] = true
	}
	x.value(&whole.Outputs)
	return x
}

// value is what a node stands for.
func (x *template) value(n *yaml.Node) any {
	switch {
	case n.Kind == 0: // there is none
		return nil
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		x.wrong["CloudFormation knows no aliases, but there is "+n.Value+n.Anchor] = true
	case strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!"):
		return x.function(n)
	case n.Kind == yaml.MappingNode:
		values := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == "Fn::ImportValue" {
				return x.value(n.Content[i+1])
			}
			if v := x.value(n.Content[i+1]); v != (none{}) {
				values[n.Content[i].Value] = v
			}
		}
		return values
	case n.Kind == yaml.SequenceNode:
		values := []any{}
		for _, c := range n.Content {
			if v := x.value(c); v != (none{}) {
				values = append(values, v)
			}
		}
		return values
	}
	var v any
	if err := n.Decode(&v); err != nil {
		x.wrong[err.Error()] = true
	}
	return v
}

// function is what one of the functions that the templates use returns.
func (x *template) function(n *yaml.Node) any {
	switch n.Tag {
	case "!Ref":
		return x.reference(n.Value)
	case "!GetAtt":
		name, _, _ := strings.Cut(n.Value, ".")
		return x.reference(name)
	case "!Sub":
		return regexp.MustCompile(`\$\{[^}]+\}`).ReplaceAllStringFunc(n.Value, func(name string) string {
			name, _, _ = strings.Cut(strings.Trim(name, "${}"), ".")
			return fmt.Sprint(x.reference(name))
		})
	case "!If":
		x.used[n.Content[0].Value] = true
		if _, known := x.Conditions[n.Content[0].Value]; !known {
			x.wrong["there is no condition "+n.Content[0].Value] = true
		}
		if x.holds {
			return x.value(n.Content[1])
		}
		return x.value(n.Content[2])
	case "!Equals", "!Not":
		for _, c := range n.Content {
			x.value(c)
		}
		return map[string]any{}
	}
	x.wrong["the test does not know "+n.Tag] = true
	return nil
}

func (x *template) reference(name string) any {
	p, isParameter := x.Parameters[name]
	_, isResource := x.Resources[name]
	switch {
	case name == "AWS::NoValue":
		return none{}
	case strings.HasPrefix(name, "AWS::"):
		return "of-aws"
	case isParameter && strings.HasPrefix(p.Type, "List<"):
		x.used[name] = true
		return []any{x.given[name]}
	case isParameter && p.Type == "Number":
		x.used[name] = true
		return json.Number(x.given[name])
	case isParameter:
		x.used[name] = true
		return x.given[name]
	case isResource:
		return "of-" + name
	}
	x.wrong["there is no "+name+" to refer to"] = true
	return ""
}

// Each resource has the properties of its type, and each name leads to something.
func TestTemplatesAreWhatCloudFormationTakes(t *testing.T) {
	t.Parallel()
	all := must.Get(jsonschema.UnmarshalJSON(strings.NewReader(schema.CloudformationSchema)))(t)
	types, _ := all.(map[string]any)["definitions"].(map[string]any)
	for _, name := range []string{"deploy/ecs/farol.yaml", "deploy/aws/rights.yaml"} {
		text := file(t, name)
		if most := 51200; len(text) > most {
			t.Errorf("%s has %d bytes; a template that is in no bucket has at most %d", name, len(text), most)
		}
		for _, holds := range []bool{true, false} {
			x := resolved(t, text, holds)
			for wrong := range x.wrong {
				t.Errorf("%s: %s", name, wrong)
			}
			for unused := range maps.Keys(x.Parameters) {
				if !x.used[unused] {
					t.Errorf("%s: nothing uses the parameter %s", name, unused)
				}
			}
			for condition := range x.Conditions {
				if !x.used[condition] {
					t.Errorf("%s: nothing uses the condition %s", name, condition)
				}
			}
			for _, id := range slices.Sorted(maps.Keys(x.Resources)) {
				r := x.Resources[id]
				if _, known := x.Conditions[r.Condition]; r.Condition != "" && !known {
					t.Errorf("%s: %s: there is no condition %s", name, id, r.Condition)
				}
				of, err := typeOf(types, r.Type)
				if err != nil {
					t.Errorf("%s: %s: %v", name, id, err)
					continue
				}
				value := must.Get(jsonschema.UnmarshalJSON(strings.NewReader(encoded(t, map[string]any{"Type": r.Type, "Properties": r.Properties}))))(t)
				if err := of.Validate(value); err != nil {
					t.Errorf("%s: %s: %v", name, id, err)
				}
			}
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	return string(must.Get(json.Marshal(v))(t))
}

// typeOf is the schema of a type of resources: of some thousand, its own, since all take long.
func typeOf(types map[string]any, name string) (*jsonschema.Schema, error) {
	own := map[string]any{}
	for other, schema := range types {
		if other == name || strings.HasPrefix(other, name+".") || !strings.Contains(other, "::") {
			own[other] = schema
		}
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("cfn.json", map[string]any{"definitions": own}); err != nil {
		return nil, err
	}
	return compiler.Compile("cfn.json#/definitions/" + name)
}
