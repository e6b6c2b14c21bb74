package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// drawer draws JSON by schemas: what one takes, most often at a bound, and what is next to that.
type drawer struct {
	dice *rand.Rand
	defs map[string]*Schema
}

// letters are those of texts without a pattern: some have several bytes.
var letters = []rune("az09 _-.é😀\"\\\n")

// mostDrawn is how many elements a list is drawn with, and how many it has beyond its bound to break that.
const mostDrawn = 64

// value draws what a schema takes, but for rules.
func (d drawer) value(schema *Schema) any {
	switch {
	case schema.Ref != "":
		return d.reference(schema)
	case schema.Const != "":
		return schema.Const
	case schema.Enum != nil:
		return schema.Enum[d.dice.IntN(len(schema.Enum))]
	case schema.AnyOf != nil && schema.Type == "":
		return d.value(schema.AnyOf[d.dice.IntN(len(schema.AnyOf))])
	}
	switch schema.Type {
	case "string":
		return d.text(schema)
	case "boolean":
		return d.dice.IntN(2) == 0
	case "integer", "number":
		return d.number(schema)
	case "array":
		most := schema.MinItems + 2
		if schema.MaxItems > 0 {
			most = min(most, schema.MaxItems)
		}
		if schema.MaxItems <= mostDrawn && d.dice.IntN(4) == 0 {
			most = max(most, schema.MaxItems)
		}
		return d.list(schema, schema.MinItems+d.dice.IntN(most-schema.MinItems+1))
	case "object":
		return d.object(schema)
	}
	return nil
}

func (d drawer) reference(schema *Schema) any {
	value := d.value(d.defs[strings.TrimPrefix(schema.Ref, "#/$defs/")])
	for _, narrower := range schema.Properties {
		value.(map[string]any)[narrower.Name] = d.value(narrower.Schema)
	}
	return value
}

func (d drawer) list(schema *Schema, count int) any {
	list := make([]any, count)
	for i := range list {
		list[i] = d.value(schema.Items)
	}
	return list
}

func (d drawer) object(schema *Schema) any {
	object := map[string]any{}
	for _, property := range schema.Properties {
		if slices.Contains(schema.Required, property.Name) || d.dice.IntN(2) == 0 {
			object[property.Name] = d.value(property.Schema)
		}
	}
	if schema.AdditionalProperties != nil {
		object[fmt.Sprint("n", d.dice.IntN(9))] = d.value(schema.AdditionalProperties)
	} else if d.dice.IntN(8) == 0 {
		object["laterVersion"] = d.dice.IntN(9)
	}
	return object
}

func (d drawer) text(schema *Schema) string {
	if schema.Pattern != "" {
		expression, err := syntax.Parse(schema.Pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		var text strings.Builder
		d.match(expression, &text)
		return text.String()
	}
	length := d.dice.IntN(4)
	if schema.MaxLength > 0 && d.dice.IntN(2) == 0 {
		length = schema.MaxLength
	}
	return d.letters(max(length, schema.MinLength))
}

func (d drawer) letters(count int) string {
	text := make([]rune, count)
	for i := range text {
		text[i] = letters[d.dice.IntN(len(letters))]
	}
	return string(text)
}

// match writes a text that a regular expression matches.
func (d drawer) match(e *syntax.Regexp, into *strings.Builder) {
	times, most := 1, 1
	switch e.Op {
	case syntax.OpLiteral:
		into.WriteString(string(e.Rune))
		return
	case syntax.OpCharClass:
		at := 2 * d.dice.IntN(len(e.Rune)/2)
		into.WriteRune(e.Rune[at] + d.dice.Int32N(e.Rune[at+1]-e.Rune[at]+1))
		return
	case syntax.OpAlternate:
		d.match(e.Sub[d.dice.IntN(len(e.Sub))], into)
		return
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpEmptyMatch:
		return
	case syntax.OpStar:
		times, most = 0, 4
	case syntax.OpPlus:
		most = 4
	case syntax.OpQuest:
		times = 0
	case syntax.OpRepeat:
		times, most = e.Min, e.Max
	case syntax.OpConcat, syntax.OpCapture:
	default:
		panic("contract: no draw of " + e.String())
	}
	switch d.dice.IntN(3) {
	case 0:
		times = most
	case 1:
		times += d.dice.IntN(most - times + 1)
	}
	for range times {
		for _, part := range e.Sub {
			d.match(part, into)
		}
	}
}

func (d drawer) number(schema *Schema) any {
	bounds := []json.Number{"0", "1", "7"}
	if schema.Type == "number" {
		bounds = append(bounds, "0.25", "1e-300", "1e300", "-1.5")
	}
	bounds = append(bounds, schema.Minimum, schema.Maximum)
	bounds = slices.DeleteFunc(bounds, func(bound json.Number) bool { return !d.takes(schema, bound) })
	return bounds[d.dice.IntN(len(bounds))]
}

// takes reports whether a number is within a schema's bounds.
func (d drawer) takes(schema *Schema, number json.Number) bool {
	value, err := number.Float64()
	if err != nil || below(value, schema.Minimum) || below(-value, negative(schema.Maximum)) {
		return false
	}
	return schema.AnyOf == nil || slices.ContainsFunc(schema.AnyOf, func(one *Schema) bool { return d.takes(one, number) })
}

func below(value float64, bound json.Number) bool {
	least, err := bound.Float64()
	return err == nil && value < least
}

func negative(bound json.Number) json.Number {
	if bound == "" {
		return ""
	}
	return json.Number(strings.TrimPrefix("-"+string(bound), "--"))
}

// mostWhole is up to where each whole number is another one as a double: services read beyond it as a bound what a schema takes for more.
const mostWhole = 1<<53 - 1

// near draws what is next to what a schema takes, or of no type that it takes. Some of it is taken all the same.
func (d drawer) near(schema *Schema) any {
	if name, isReference := strings.CutPrefix(schema.Ref, "#/$defs/"); isReference && d.dice.IntN(2) == 0 {
		return d.inside(d.defs[name], d.reference(schema).(map[string]any))
	}
	choices := []any{nil, json.Number("1.0"), json.Number("1e400"), json.Number("9007199254740993"), -1, 1.5, "", "x", " ", true, []any{}, []any{nil},
		map[string]any{}, strings.Repeat("é", 1025), strings.Repeat("a", 65)}
	switch schema.Type {
	case "string":
		text := d.text(schema)
		choices = append(choices, text+" ", text+"\n", strings.ToUpper(text), d.letters(schema.MaxLength+1), strings.Repeat("é", schema.MaxLength))
	case "integer", "number":
		for _, bound := range []json.Number{schema.Minimum, schema.Maximum} {
			value, err := strconv.ParseInt(string(bound), 10, 64)
			isExact := schema.Type == "integer" || -mostWhole <= value && value <= mostWhole
			if err == nil && isExact {
				choices = append(choices, value-1, value+1)
			} else if value, err := bound.Float64(); err == nil && value < math.MaxFloat64 {
				choices = append(choices, value*0.999, value*1.001)
			}
		}
	case "array":
		if schema.MinItems > 0 {
			choices = append(choices, d.list(schema, schema.MinItems-1))
		}
		if schema.MaxItems > 0 && schema.MaxItems <= mostDrawn {
			choices = append(choices, d.list(schema, schema.MaxItems+1))
		}
	}
	return choices[d.dice.IntN(len(choices))]
}

// inside spoils a field of an object: its value, its name, or that it is there.
func (d drawer) inside(schema *Schema, object map[string]any) any {
	object = maps.Clone(object)
	property := schema.Properties[d.dice.IntN(len(schema.Properties))]
	switch d.dice.IntN(6) {
	case 0:
		delete(object, property.Name)
	case 1:
		object[strings.ToUpper(property.Name)] = "x"
	default:
		object[property.Name] = d.near(property.Schema)
	}
	return object
}
