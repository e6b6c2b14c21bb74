package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// missing reports the first required field that data lacks; data is the JSON of a value of type t. Every field is
// required but those with omitempty. An empty list may be null, because Go programs write a nil slice so.
func missing(t reflect.Type, data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	if lacks := missingIn(t, value); lacks != nil {
		return lacks
	}
	return nil
}

func missingIn(t reflect.Type, value any) *FieldError {
	switch t.Kind() {
	case reflect.Pointer:
		return missingIn(t.Elem(), value)
	case reflect.Struct:
		return missingField(t, value)
	case reflect.Slice:
		elements, _ := value.([]any)
		for i := 0; t.Elem().Kind() == reflect.Struct && i < len(elements); i++ {
			if lacks := missingField(t.Elem(), elements[i]); lacks != nil {
				return lacks.within(fmt.Sprintf("[%d]", i))
			}
		}
	}
	return nil
}

func missingField(t reflect.Type, value any) *FieldError {
	object, isObject := value.(map[string]any)
	if !isObject {
		got, _ := json.Marshal(value)
		return &FieldError{Expected: "an object", Got: fmt.Sprintf("%.20s", got)}
	}
	for _, field := range fieldsOf(t) {
		inner, isPresent := object[field.name]
		if !field.optional && (!isPresent || inner == nil && !field.list) {
			return &FieldError{Field: field.name, Expected: "a value", Got: "none"}
		}
		if inner == nil {
			continue
		}
		if lacks := missingIn(field.of, inner); lacks != nil {
			return lacks.within(field.name)
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
