package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Minimum              json.Number        `json:"minimum,omitempty"`
	Maximum              json.Number        `json:"maximum,omitempty"`
	MinLength            int                `json:"minLength,omitempty"`
	MaxLength            int                `json:"maxLength,omitempty"`
	MinItems             int                `json:"minItems,omitempty"`
	MaxItems             int                `json:"maxItems,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AnyOf                []*Schema          `json:"anyOf,omitempty"`
	OneOf                []*Schema          `json:"oneOf,omitempty"`
	PropertyNames        *Schema            `json:"propertyNames,omitempty"`
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
	base64Text   = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
)

// eventSchema describes the whole CloudEvent of a row, its payload under data.
func eventSchema(row events.Row, comments comments) *Schema {
	payload := reflect.TypeOf(row.New()).Elem()
	generator := generator{comments: comments, defs: map[string]*Schema{}}
	data := generator.field(payload, events.Limits{})
	return &Schema{
		Dialect: dialect, Title: string(row.Kind), Description: row.Says + rulesOf("event"), Type: "object",
		Required: []string{"specversion", "id", "type", "source", "subject", "cluster"},
		OneOf:    []*Schema{holding("data"), holding("dataref")},
		Properties: Properties{
			{"specversion", &Schema{Const: "1.0"}},
			{"id", &Schema{Type: "string", Pattern: tokenPattern,
				Description: "Derived from the cause: what is said again has the same id."}},
			{"type", &Schema{Const: row.Kind.Type()}},
			{"source", sourceSchema(row.SaidBy)},
			{"subject", &Schema{Type: "string", Pattern: tokenPattern,
				Description: fmt.Sprintf("The %s spoken of; the last token of the NATS subject.", row.Kind.About())}},
			{"time", &Schema{Type: "string", Pattern: events.TimePattern, Description: "A day that there is, in RFC 3339."}},
			{"datacontenttype", &Schema{Const: "application/json"}},
			{"dataschema", &Schema{Type: "string", Pattern: events.DataSchemaPattern, Description: "Where a schema is; nobody reads it."}},
			{"cluster", &Schema{Type: "string", Pattern: tokenPattern}},
			{"cause", &Schema{Type: "string", Pattern: tokenPattern,
				Description: "Id of the event that caused this one; absent for a first cause."}},
			{"traceparent", &Schema{Type: "string", Pattern: events.TraceparentPattern, Description: "W3C trace context, version 00."}},
			{"dataref", &Schema{Type: "string", Pattern: "^sha256:[0-9a-f]{64}$",
				Description: "Digest of a payload too large for an event, which is in the object store " + payloadsOf(row) + "."}},
			{"signature", &Schema{Type: "string", Pattern: events.SignaturePattern,
				Description: "Of who speaks, where the installation is secured."}},
			{"data", data},
		},
		PropertyNames:        &Schema{Pattern: events.AttributePattern},
		AdditionalProperties: extension(),
		Defs:                 generator.defs,
	}
}

// holding is an object that has a field. Some validators demand that a field which is required is a property beside that.
func holding(field string) *Schema {
	return &Schema{Required: []string{field}, Properties: Properties{{field, &Schema{}}}}
}

// extension is the value of an attribute that is not ours, as CloudEvents have them.
func extension() *Schema {
	return &Schema{AnyOf: []*Schema{
		{Type: "string"}, {Type: "boolean"}, {Type: "integer", Minimum: "-2147483648", Maximum: "2147483647"},
	}}
}

// rulesOf tells which rules a definition has that the schema cannot say.
func rulesOf(definition string) string {
	var said strings.Builder
	for _, rule := range events.Rules {
		if slices.Contains(strings.Split(rule.Of, ", "), definition) {
			fmt.Fprintf(&said, " Rule %s: %s", rule.Name, rule.Says)
		}
	}
	return said.String()
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
	g.field(t, events.Limits{})
	schema := g.defs[t.Name()]
	delete(g.defs, t.Name())
	schema.Dialect, schema.Defs = dialect, g.defs
	return schema
}

// field returns the schema of a value as Speaker.Say writes it: an empty list is a list.
func (g generator) field(t reflect.Type, limits events.Limits) *Schema {
	switch t.Kind() {
	case reflect.Pointer:
		return g.field(t.Elem(), limits)
	case reflect.Struct:
		schema := g.reference(t)
		if limits.Units {
			schema.Type, schema.Properties = "object", Properties{{"end", &Schema{
				Type: "integer", Minimum: "1", Maximum: decimal(events.MostUnits)}}}
		}
		return schema
	case reflect.String:
		return textSchema(limits)
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Float64:
		return numberSchema("number", limits)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return numberSchema("integer", limits)
	case reflect.Map:
		return &Schema{Type: "object", AdditionalProperties: g.field(t.Elem(), elementOf(t, limits))}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Schema{Type: "string", ContentEncoding: "base64", Pattern: base64Text, MaxLength: (limits.Most + 2) / 3 * 4}
		}
		return &Schema{Type: "array", Items: g.field(t.Elem(), elementOf(t, limits)), MinItems: limits.Shortest, MaxItems: limits.Most}
	}
	panic("contract: no schema for " + t.String() + ": payloads are plain data")
}

// elementOf returns the limits of a list's elements.
func elementOf(t reflect.Type, limits events.Limits) events.Limits {
	return events.LimitsOf(reflect.StructField{Type: t.Elem(), Tag: reflect.StructTag(fmt.Sprintf("is:%q", limits.Each))})
}

func textSchema(limits events.Limits) *Schema {
	schema := &Schema{Type: "string", MinLength: limits.Shortest, MaxLength: limits.Most, Enum: limits.Words}
	switch limits.Form {
	case "token":
		schema.Pattern = tokenPattern
	case "digest":
		schema.Pattern = "^sha256:[0-9a-f]{64}$"
	}
	if !limits.Optional {
		return schema
	}
	schema.MinLength = 0
	if schema.Enum != nil {
		schema.Enum = append(slices.Clone(schema.Enum), "")
	}
	if schema.Pattern != "" {
		schema.Pattern = "^(" + strings.Trim(schema.Pattern, "^$") + ")?$"
	}
	return schema
}

func numberSchema(of string, limits events.Limits) *Schema {
	if limits.Optional && (limits.Min > 0 || limits.Rate) {
		panic("contract: a number that may be left out may be 0")
	}
	schema := &Schema{Type: of, Minimum: decimal(limits.Min), Maximum: decimal(limits.Max)}
	if limits.Rate {
		schema.AnyOf = []*Schema{{Maximum: "0"}, {Minimum: "1"}}
	}
	return schema
}

// decimal writes a bound; nothing where there is none.
func decimal(bound float64) json.Number {
	if math.IsInf(bound, 0) {
		return ""
	}
	text, err := json.Marshal(bound)
	if err != nil {
		panic(err) // it is a number
	}
	return json.Number(text)
}

// reference defines a struct at its first use and refers to it.
func (g generator) reference(t reflect.Type) *Schema {
	if g.defs[t.Name()] == nil {
		schema := &Schema{Description: g.comments[t.Name()] + rulesOf(t.Name()), Type: "object"}
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
		schema := g.field(field.Type, events.LimitsOf(field))
		schema.Description = g.comments[t.Name()+"."+field.Name]
		into.Properties = append(into.Properties, Property{name, schema})
		if options != "omitempty" && options != "omitzero" {
			into.Required = append(into.Required, name)
		}
	}
}
