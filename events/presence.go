package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// missing reports the first required field that data lacks. Every field is required but those with omitempty. An
// empty list may be null, because Go programs write a nil slice so.
func missing(t reflect.Type, data json.RawMessage, path string) error {
	switch t.Kind() {
	case reflect.Pointer:
		return missing(t.Elem(), data, path)
	case reflect.Struct:
		return missingField(t, data, path)
	case reflect.Slice:
		return missingInList(t.Elem(), data, path)
	}
	return nil
}

func missingInList(t reflect.Type, data json.RawMessage, path string) error {
	var elements []json.RawMessage
	if t.Kind() != reflect.Struct || json.Unmarshal(data, &elements) != nil {
		return nil
	}
	for i, element := range elements {
		if err := missing(t, element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func missingField(t reflect.Type, data json.RawMessage, path string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return &FieldError{Field: path, Expected: "an object", Got: fmt.Sprintf("%.20s", data)}
	}
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		inner, isPresent := fields[name]
		isNull := string(inner) == "null"
		isList := field.Type.Kind() == reflect.Slice || field.Type.Kind() == reflect.Map
		if options != "omitempty" && (!isPresent || isNull && !isList) {
			return &FieldError{Field: at, Expected: "a value", Got: "none"}
		}
		if !isPresent || isNull {
			continue
		}
		if err := missing(field.Type, inner, at); err != nil {
			return err
		}
	}
	return nil
}

// fill makes nil lists and maps empty ones, so that they are written as [] and {}: null is no list to a trainer in
// another language.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			fill(value.Elem())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			fill(value.Field(i))
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
