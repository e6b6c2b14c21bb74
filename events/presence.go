package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// missing reports a required field that data lacks, and what no reader in another language would take: null in a value's
// place, and a field that is there twice or differs from one of ours in case only. Data is the valid JSON of a value of type
// t. Every field is required but those with omitempty.
func missing(t reflect.Type, data []byte) error {
	c := cursor{data: data}
	err := c.missingIn(t)
	if at, is := errors.AsType[*FieldError](err); is {
		at.Field = cmp.Or(at.Field, whole)
	}
	return err
}

func (c *cursor) missingIn(t reflect.Type) error {
	first := c.peek()
	switch {
	case first == 'n':
		return &FieldError{Expected: kindOf(t), Got: string(c.skip())}
	case t.Kind() == reflect.Pointer:
		return c.missingIn(t.Elem())
	case t.Kind() == reflect.Struct:
		return c.missingField(t)
	case t.Kind() == reflect.Slice && first == '[':
		return c.missingElement(t.Elem())
	case t.Kind() == reflect.Map && first == '{':
		return c.missingValue(t.Elem())
	case t.Kind() == reflect.Slice:
		return oneLine(c.skip())
	}
	c.skip()
	return nil
}

// oneLine refuses breaks within base64, which Go reads over.
func oneLine(quoted []byte) error {
	var text string
	if bytes.IndexByte(quoted, '\\') >= 0 && json.Unmarshal(quoted, &text) == nil && strings.ContainsAny(text, "\r\n") {
		return &FieldError{Expected: "base64", Got: "lines of it"}
	}
	return nil
}

func (c *cursor) missingElement(t reflect.Type) error {
	c.at++
	for i := 0; c.more(); i++ {
		if err := c.missingIn(t); err != nil {
			return inside(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

func (c *cursor) missingValue(t reflect.Type) error {
	c.at++
	for c.more() {
		name := string(c.name())
		if err := c.missingIn(t); err != nil {
			return inside(name, err)
		}
	}
	return nil
}

func (c *cursor) missingField(t reflect.Type) error {
	if c.peek() != '{' {
		return &FieldError{Expected: "an object", Got: fmt.Sprintf("%.20s", c.skip())}
	}
	c.at++
	fields, next := fieldsOf(t), 0
	var present [mostFields]bool
	for c.more() {
		name := c.name()
		i := next // for most come in this order
		if i >= len(fields) || fields[i].name != string(name) {
			i = slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, string(name)) })
		}
		if i < 0 {
			c.skip()
			continue
		}
		if present[i] || fields[i].name != string(name) {
			return &RuleError{"names", &FieldError{Field: fields[i].name, Expected: "it once, in this case", Got: fmt.Sprintf("%.40q", name)}}
		}
		next, present[i] = i+1, true
		if err := c.missingIn(fields[i].of); err != nil {
			return inside(fields[i].name, err)
		}
	}
	for i, field := range fields {
		if !present[i] && !field.optional {
			return &FieldError{Field: field.name, Expected: "a value", Got: "none"}
		}
	}
	return nil
}

// within puts a field's name behind that of the value it is in.
func (e *FieldError) within(outer string) *FieldError {
	if e.Field != "" && e.Field[0] != '[' {
		outer += "."
	}
	e.Field = outer + e.Field
	return e
}

// field is what a struct's tags say of one of its fields.
type field struct {
	name     string
	of       reflect.Type
	optional bool
}

// mostFields is how many fields a struct of a payload may have: fieldsOf panics beyond it.
const mostFields = 32

// fields are those of each type that was asked for: payloads are few, and reading tags takes longer than reading JSON.
var fields sync.Map

func fieldsOf(t reflect.Type) []field {
	if known, ok := fields.Load(t); ok {
		return known.([]field)
	}
	var list []field
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		list = append(list, field{name: name, of: f.Type, optional: strings.HasPrefix(options, "omit")})
	}
	if len(list) > mostFields {
		panic(fmt.Sprintf("events: %v has %d fields, expected at most %d", t, len(list), mostFields))
	}
	fields.Store(t, list)
	return list
}

// Fill makes a payload ready to be written by who is no Speaker.
func Fill(payload Payload) { fill(reflect.ValueOf(payload)) }

// fill makes nil lists and maps empty ones, so that they are written as [] and {}: null is no list to a trainer in
// another language. It cuts reasons, which grow with everyone who tells what another said: an event whose reason is too
// long may not travel, and what it says would be heard by nobody.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			fill(value.Elem())
		}
	case reflect.Struct:
		for _, i := range fillsOf(value.Type()) {
			if field := value.Field(i); field.Kind() == reflect.String {
				field.SetString(Brief(field.String()))
			} else {
				fill(field)
			}
		}
	case reflect.Map:
		if value.IsNil() {
			value.Set(reflect.MakeMap(value.Type()))
		}
	case reflect.Slice:
		if value.IsNil() {
			value.Set(reflect.MakeSlice(value.Type(), 0, 0))
		}
		if fills(value.Type().Elem()) {
			for i := range value.Len() {
				fill(value.Index(i))
			}
		}
	}
}

// fills reports whether a value of a type may have something to fill, or a reason to cut.
func fills(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return fills(t.Elem())
	case reflect.Struct:
		return len(fillsOf(t)) > 0
	}
	return t.Kind() == reflect.Map || t.Kind() == reflect.Slice
}

// filling is what fillsOf found of each struct that was asked for: to ask each member of a plan again took longer than to
// write it.
var filling sync.Map

// fillsOf returns the indices of the fields of a struct that may have something to fill, and of its reason. No payload may have
// a part of its own type: it would ask for ever.
func fillsOf(t reflect.Type) (indices []int) {
	if known, ok := filling.Load(t); ok {
		return known.([]int)
	}
	for i := range t.NumField() {
		if field := t.Field(i); fills(field.Type) || field.Name == "Reason" {
			indices = append(indices, i)
		}
	}
	filling.Store(t, indices)
	return indices
}

// Brief cuts a reason to what may travel.
func Brief(reason string) string { return Shorten(reason, mostReason) }

const cut = "…" // stands for what was cut out of a text

// Shorten cuts a text in its middle, between whole characters, where it has more bytes than most: an error begins with what failed and
// ends with the cause.
func Shorten(text string, most int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= most {
		return text
	}
	end := (most - len(cut)) / 2
	begin := len(text) - (most - len(cut) - end)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	for begin < len(text) && !utf8.RuneStart(text[begin]) {
		begin++
	}
	return text[:end] + cut + text[begin:]
}
