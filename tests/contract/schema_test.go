package contract

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/reknit/reknit/events"
)

var update = flag.Bool("update", false, "write the generated files (make generate)")

func TestTheGeneratedFilesAreUpToDate(t *testing.T) {
	generated, err := Generated(string(read(t, "README.md")))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range generated {
		path := filepath.Join(eventsFolder, name)
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		found, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if !bytes.Equal(found, text) {
			t.Errorf("events/%s is not what the catalogue and the structs say: run make generate", name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(eventsFolder, "schema"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, expected := generated["schema/"+entry.Name()]; !expected {
			t.Errorf("events/schema/%s belongs to no event: remove it", entry.Name())
		}
	}
}

func TestAnExampleIsValidByItsSchema(t *testing.T) {
	eachExample(t, func(t *testing.T, example example) {
		if err := schemaOf(t, schemaPath(example.row.Kind)).Validate(anyJSON(t, example.text)); err != nil {
			t.Error(err)
		}
	})
}

// An example that leaves a field out teaches nobody what stands in it.
func TestEveryFieldAppearsInSomeExample(t *testing.T) {
	seen := map[string]bool{}
	collect := func(root reflect.Type, text []byte) { noteFields(root, anyJSON(t, text), seen) }
	for _, example := range examples(t) {
		collect(reflect.TypeOf(example.row.New()).Elem(), example.event(t).Data)
	}
	for _, message := range Messages {
		for _, name := range exampleFiles(t) {
			if stem, _, _ := strings.Cut(name, "."); stem == message.Name {
				collect(reflect.TypeOf(message.Payload), read(t, "examples/"+name))
			}
		}
	}
	var expected []string
	for _, row := range events.Catalogue {
		expected = fieldsOf(reflect.TypeOf(row.New()).Elem(), expected)
	}
	for _, message := range Messages {
		expected = fieldsOf(reflect.TypeOf(message.Payload), expected)
	}
	for _, field := range expected {
		if !seen[field] {
			t.Errorf("no example shows %s", field)
		}
		seen[field] = true // once is enough
	}
}

// noteFields marks the fields of a struct type that a JSON value has, as "Join.node".
func noteFields(t reflect.Type, value any, seen map[string]bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			noteFields(t.Elem(), element, seen)
		}
	case map[string]any:
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for _, field := range reflect.VisibleFields(t) {
			name := jsonName(field)
			if inner, ok := value[name]; ok && !field.Anonymous {
				seen[t.Name()+"."+name] = true
				noteFields(field.Type, inner, seen)
			}
		}
	}
}

// fieldsOf appends the fields of a struct type and of all below it.
func fieldsOf(t reflect.Type, into []string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return fieldsOf(t.Elem(), into)
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			if !field.Anonymous {
				into = fieldsOf(field.Type, append(into, t.Name()+"."+jsonName(field)))
			}
		}
	}
	return into
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func TestAsyncAPIReferencesOnlyWhatExists(t *testing.T) {
	var document map[string]any
	if err := yaml.Unmarshal(read(t, "asyncapi.yaml"), &document); err != nil {
		t.Fatal(err)
	}
	if channels := document["channels"].(map[string]any); len(channels) != len(events.Catalogue)+len(Messages) {
		t.Errorf("%d channels, expected one an event and message", len(channels))
	}
	eachReference(document, func(reference string) {
		if path, local := strings.CutPrefix(reference, "#/"); local {
			if lookUp(document, strings.Split(path, "/")) == nil {
				t.Errorf("%s refers to nothing", reference)
			}
		} else if _, err := os.Stat(filepath.Join(eventsFolder, reference)); err != nil {
			t.Error(err)
		}
	})
}

func eachReference(value any, visit func(string)) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if reference, ok := inner.(string); ok && key == "$ref" {
				visit(reference)
			}
			eachReference(inner, visit)
		}
	case []any:
		for _, inner := range value {
			eachReference(inner, visit)
		}
	}
}

func lookUp(value any, path []string) any {
	for _, step := range path {
		object, _ := value.(map[string]any)
		value = object[step]
	}
	return value
}

// compiled keeps each schema: the tests validate thousands of mutations.
var compiled = map[string]*jsonschema.Schema{}

func schemaOf(t *testing.T, path string) *jsonschema.Schema {
	t.Helper()
	if schema := compiled[path]; schema != nil {
		return schema
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(filepath.Join(eventsFolder, path))
	if err != nil {
		t.Fatal(err)
	}
	compiled[path] = schema
	return schema
}
