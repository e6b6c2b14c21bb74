package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// Schema is the part of JSON Schema 2020-12 that Go's structs need, in the order in which it is printed.
type Schema struct {
	Dialect              string             `json:"$schema,omitempty"`
	Title                string             `json:"title,omitempty"`
	Description          string             `json:"description,omitempty"`
	Ref                  string             `json:"$ref,omitempty"`
	Type                 string             `json:"type,omitempty"`
	Const                string             `json:"const,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Format               string             `json:"format,omitempty"`
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Minimum              *int               `json:"minimum,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AnyOf                []*Schema          `json:"anyOf,omitempty"`
	Properties           Properties         `json:"properties,omitempty"`
	Items                *Schema            `json:"items,omitempty"`
	AdditionalProperties *Schema            `json:"additionalProperties,omitempty"`
	Defs                 map[string]*Schema `json:"$defs,omitempty"`
}

// Properties are an object's fields in the struct's order.
type Properties []Property

// Property is one field of an object.
type Property struct {
	Name   string
	Schema *Schema
}

// MarshalJSON writes the properties as an object that keeps their order.
func (p Properties) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	for i, property := range p {
		schema, err := json.Marshal(property.Schema)
		if err != nil {
			return nil, err
		}
		separator := ","
		if i == 0 {
			separator = ""
		}
		fmt.Fprintf(&out, "%s%q:%s", separator, property.Name, schema)
	}
	return []byte("{" + out.String() + "}"), nil
}

const (
	dialect      = "https://json-schema.org/draft/2020-12/schema"
	tokenPattern = "^[A-Za-z0-9_-]{1,64}$"
	// W3C trace context, version 00.
	traceparentPattern = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
)

// eventSchema describes the whole CloudEvent of a row, its payload under data.
func eventSchema(row events.Row, comments comments) *Schema {
	payload := reflect.TypeOf(row.New()).Elem()
	generator := generator{comments: comments, defs: map[string]*Schema{}}
	data := generator.field(payload)
	return &Schema{
		Dialect: dialect, Title: string(row.Kind), Description: row.Says, Type: "object",
		Required: []string{"specversion", "id", "type", "source", "subject", "cluster"},
		AnyOf:    []*Schema{{Required: []string{"data"}}, {Required: []string{"dataref"}}},
		Properties: Properties{
			{"specversion", &Schema{Const: "1.0"}},
			{"id", &Schema{Type: "string", Pattern: tokenPattern,
				Description: "Derived from the cause: what is said again has the same id."}},
			{"type", &Schema{Const: row.Kind.Type()}},
			{"source", sourceSchema(row.SaidBy)},
			{"subject", &Schema{Type: "string", Pattern: tokenPattern,
				Description: fmt.Sprintf("The %s spoken of; the last token of the NATS subject.", row.Kind.About())}},
			{"time", &Schema{Type: "string", Format: "date-time"}},
			{"datacontenttype", &Schema{Const: "application/json"}},
			{"cluster", &Schema{Type: "string", Pattern: tokenPattern}},
			{"cause", &Schema{Type: "string", Description: "Id of the event that caused this one; absent for a first cause."}},
			{"traceparent", &Schema{Type: "string", Pattern: traceparentPattern}},
			{"dataref", &Schema{Type: "string", Pattern: "^sha256:[0-9a-f]{64}$",
				Description: "Digest of a payload too large for an event, which is in the object store " + payloadsOf(row) + "."}},
			{"signature", &Schema{Type: "string", Pattern: "^[A-Za-z0-9_-]{86}$",
				Description: "Of who speaks, where the installation is secured."}},
			{"data", data},
		},
		Defs: generator.defs,
	}
}

// payloadsOf returns where a payload goes that is too large for the event.
func payloadsOf(row events.Row) string {
	if row.Plan {
		return events.Lane("<cluster>", events.PlanStream.Payloads)
	}
	return events.Lane("<cluster>", events.EventStream.Payloads)
}

// sourceSchema admits those who may say an event.
func sourceSchema(saidBy []string) *Schema {
	if !slices.Contains(saidBy, "node") {
		var sources []string
		for _, name := range saidBy {
			sources = append(sources, "/"+name)
		}
		return &Schema{Enum: sources}
	}
	pattern := strings.Replace(strings.Join(saidBy, "|"), "node", "node/[A-Za-z0-9_-]{1,64}", 1)
	return &Schema{Type: "string", Pattern: "^/(" + pattern + ")$"}
}

// generator turns Go types into schemas as encoding/json writes them. Structs become definitions, once each.
type generator struct {
	comments comments
	defs     map[string]*Schema
}

// document returns the schema of a struct that stands alone.
func (g generator) document(t reflect.Type) *Schema {
	g.field(t)
	schema := g.defs[t.Name()]
	delete(g.defs, t.Name())
	schema.Dialect, schema.Defs = dialect, g.defs
	return schema
}

// field returns the schema of a value as Speaker.Say writes it: an empty list is a list.
func (g generator) field(t reflect.Type) *Schema {
	zero := 0
	switch t.Kind() {
	case reflect.Pointer:
		return g.field(t.Elem())
	case reflect.Struct:
		return g.reference(t)
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer"}
	case reflect.Uint64:
		return &Schema{Type: "integer", Minimum: &zero}
	case reflect.Map:
		return &Schema{Type: "object", AdditionalProperties: g.field(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Schema{Type: "string", ContentEncoding: "base64"}
		}
		return &Schema{Type: "array", Items: g.field(t.Elem())}
	}
	panic("contract: no schema for " + t.String() + ": payloads are plain data")
}

// reference defines a struct at its first use and refers to it.
func (g generator) reference(t reflect.Type) *Schema {
	if g.defs[t.Name()] == nil {
		schema := &Schema{Description: g.comments[t.Name()], Type: "object"}
		g.defs[t.Name()] = schema
		g.fields(t, schema)
	}
	return &Schema{Ref: "#/$defs/" + t.Name()}
}

func (g generator) fields(t reflect.Type, into *Schema) {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous {
			g.fields(field.Type, into)
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			panic("contract: " + t.Name() + "." + field.Name + ": expected a json tag with a name, got none")
		}
		schema := g.field(field.Type)
		schema.Description = g.comments[t.Name()+"."+field.Name]
		into.Properties = append(into.Properties, Property{name, schema})
		if options != "omitempty" && options != "omitzero" {
			into.Required = append(into.Required, name)
		}
	}
}
