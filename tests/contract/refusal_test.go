package contract

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// place is a field of an example: the steps to it from the top, and its schema.
type place struct {
	path     []string
	schema   *Schema
	required bool
}

func (p place) field() string { return p.path[len(p.path)-1] }

// places lists the fields of a value that its schema knows; of a list only the first element.
func places(root, schema *Schema, value any, path []string) []place {
	if name, isReference := strings.CutPrefix(schema.Ref, "#/$defs/"); isReference {
		schema = root.Defs[name]
	}
	var found []place
	switch value := value.(type) {
	case []any:
		if len(value) > 0 {
			return places(root, schema.Items, value[0], append(slices.Clone(path), "0"))
		}
	case map[string]any:
		for _, property := range schema.Properties {
			inner, present := value[property.Name]
			if !present {
				continue
			}
			at := append(slices.Clone(path), property.Name)
			found = append(found, place{at, property.Schema, slices.Contains(schema.Required, property.Name)})
			found = append(found, places(root, property.Schema, inner, at)...)
		}
	}
	return found
}

// changed returns a copy of a JSON value in which change was done to the object that holds the field.
func changed(value any, path []string, change func(object map[string]any, field string)) any {
	switch value := value.(type) {
	case []any:
		index, _ := strconv.Atoi(path[0])
		copied := slices.Clone(value)
		copied[index] = changed(value[index], path[1:], change)
		return copied
	case map[string]any:
		copied := maps.Clone(value)
		if len(path) == 1 {
			change(copied, path[0])
		} else {
			copied[path[0]] = changed(value[path[0]], path[1:], change)
		}
		return copied
	}
	return value
}

// wrongValue is of no type that the schema admits.
func wrongValue(schema *Schema) any {
	if schema.Type == "string" || schema.Const != "" || schema.Enum != nil {
		return 7
	}
	return "seven"
}

// eachPlace runs a test for every field of every example.
func eachPlace(t *testing.T, test func(t *testing.T, example example, whole any, at place)) {
	comments, err := parseComments()
	if err != nil {
		t.Fatal(err)
	}
	eachExample(t, func(t *testing.T, example example) {
		schema, whole := eventSchema(example.row, comments), anyJSON(t, example.text)
		for _, at := range places(schema, schema, whole, nil) {
			test(t, example, whole, at)
		}
	})
}

func TestAnExampleWithoutARequiredFieldIsRefusedByItsSchema(t *testing.T) {
	removed := 0
	eachPlace(t, func(t *testing.T, example example, whole any, at place) {
		if isPayload := slices.Equal(at.path, []string{"data"}); !at.required && !isPayload {
			return
		}
		removed++
		without := changed(whole, at.path, func(object map[string]any, field string) { delete(object, field) })
		mustName(t, at, schemaOf(t, schemaPath(example.row.Kind)).Validate(without))
	})
	if removed < 500 {
		t.Errorf("%d fields removed, expected hundreds", removed)
	}
}

func TestAnExampleWithAFieldOfWrongTypeIsRefusedByItsSchema(t *testing.T) {
	eachPlace(t, func(t *testing.T, example example, whole any, at place) {
		wrong := changed(whole, at.path, func(object map[string]any, field string) { object[field] = wrongValue(at.schema) })
		mustName(t, at, schemaOf(t, schemaPath(example.row.Kind)).Validate(wrong))
	})
}

func TestAPayloadWithAFieldOfWrongTypeIsRefusedByItsStruct(t *testing.T) {
	eachPlace(t, func(t *testing.T, example example, whole any, at place) {
		if at.path[0] != "data" || len(at.path) == 1 {
			return
		}
		wrong := changed(whole, at.path, func(object map[string]any, field string) { object[field] = wrongValue(at.schema) })
		data, err := json.Marshal(wrong.(map[string]any)["data"])
		if err != nil {
			t.Fatal(err)
		}
		mustName(t, at, json.Unmarshal(data, example.row.New()))
	})
}

func TestAPayloadWithoutARequiredFieldIsRefusedByItsStruct(t *testing.T) {
	eachPlace(t, func(t *testing.T, example example, whole any, at place) {
		if at.path[0] != "data" || len(at.path) == 1 || !at.required {
			return
		}
		without := changed(whole, at.path, func(object map[string]any, field string) { delete(object, field) })
		mustName(t, at, events.Decode([]byte(asText(t, without.(map[string]any)["data"])), example.row.New()))
	})
}

func TestAnExampleFromAnotherSpeakerOrOfAnotherVersionIsRefused(t *testing.T) {
	eachExample(t, func(t *testing.T, example example) {
		schema, whole := schemaOf(t, schemaPath(example.row.Kind)), anyJSON(t, example.text)
		for _, source := range []string{"/nobody", "/node/", "/node/n 1", "nobody/node/n1", "", "monitor", "node/n1", "/node", "/monitor/x"} {
			set := func(object map[string]any, field string) { object[field] = source }
			mustName(t, place{path: []string{"source"}}, schema.Validate(changed(whole, []string{"source"}, set)))
			if example.row.Authorised(source) {
				t.Errorf("source %q may say it, expected only %q", source, example.row.SaidBy)
			}
		}
		version2 := strings.TrimSuffix(example.row.Kind.Type(), "1") + "2"
		set := func(object map[string]any, field string) { object[field] = version2 }
		mustName(t, place{path: []string{"type"}}, schema.Validate(changed(whole, []string{"type"}, set)))
		if kind, err := events.KindOf(version2); err == nil {
			t.Errorf("type %q is %q, expected none of the catalogue", version2, kind)
		}
	})
}

// mustName demands an error that names the field.
func mustName(t *testing.T, at place, err error) {
	t.Helper()
	path := strings.Join(at.path, "/")
	if err == nil {
		t.Errorf("%s: accepted, expected an error", path)
	} else if !strings.Contains(err.Error(), at.field()) {
		t.Errorf("%s: refused with %q, expected the field's name", path, err)
	}
}
