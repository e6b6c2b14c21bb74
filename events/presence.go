package events

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// missing reports a required field that data lacks; data is the valid JSON of a value of type t. Every field is
// required but those with omitempty. An empty list may be null, because Go programs write a nil slice so.
func missing(t reflect.Type, data []byte) error {
	c := cursor{data: data}
	lacks := c.missingIn(t)
	if lacks == nil {
		return nil
	}
	lacks.Field = cmp.Or(lacks.Field, whole)
	return lacks
}

func (c *cursor) missingIn(t reflect.Type) *FieldError {
	switch {
	case t.Kind() == reflect.Pointer:
		return c.missingIn(t.Elem())
	case t.Kind() == reflect.Struct:
		return c.missingField(t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && c.peek() == '[':
		return c.missingElement(t.Elem())
	}
	c.skip()
	return nil
}

func (c *cursor) missingElement(t reflect.Type) *FieldError {
	c.at++
	for i := 0; c.more(); i++ {
		if lacks := c.missingField(t); lacks != nil {
			return lacks.within(fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

func (c *cursor) missingField(t reflect.Type) *FieldError {
	if c.peek() != '{' {
		return &FieldError{Expected: "an object", Got: fmt.Sprintf("%.20s", c.skip())}
	}
	c.at++
	fields := fieldsOf(t)
	present := make([]bool, len(fields))
	for c.more() {
		name := c.name()
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == string(name) })
		if i < 0 {
			c.skip()
			continue
		}
		isNull := c.peek() == 'n'
		present[i] = !isNull || fields[i].list
		if isNull {
			c.skip()
			continue
		}
		if lacks := c.missingIn(fields[i].of); lacks != nil {
			return lacks.within(fields[i].name)
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
	name           string
	of             reflect.Type
	optional, list bool
}

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
		isList := f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map
		list = append(list, field{name: name, of: f.Type, optional: strings.HasPrefix(options, "omit"), list: isList})
	}
	fields.Store(t, list)
	return list
}

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
		for i := range value.NumField() {
			fill(value.Field(i))
			if field := value.Field(i); value.Type().Field(i).Name == "Reason" {
				field.SetString(Brief(field.String()))
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
		for i := range value.Len() {
			fill(value.Index(i))
		}
	}
}

// Brief cuts a reason to what may travel, behind a whole character.
func Brief(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	end := min(len(reason), mostReason)
	for end < len(reason) && !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}
