// Package cluster reads a cluster's file: its nodes, links and model, and what happens to them. Every error names the
// field, its line and what was expected there.
package cluster

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fault is what is wrong with a file: which field (none for all of it), what was expected there, and what it is.
type Fault struct {
	File, Field, Expected, Got string
	Line                       int // 0 where the field is missing altogether
}

func (f *Fault) Error() string {
	at, field := f.File, f.Field
	if field == "" {
		field = "the file"
	}
	if f.Line > 0 {
		at += fmt.Sprintf(":%d", f.Line)
	}
	return fmt.Sprintf("%s: %s: expected %s, got %s", at, field, f.Expected, f.Got)
}

// Document remembers where each field of a file stands.
type Document struct {
	name  string
	lines map[string]int // by the path of the field, such as nodes[1].memory
}

// Fault says what was expected at a field and what stands there.
func (d *Document) Fault(field, expected string, got any) error {
	return &Fault{File: d.name, Line: d.line(field), Field: field, Expected: expected, Got: fmt.Sprint(got)}
}

// line returns the line of a field, or of the nearest field around it.
func (d *Document) line(field string) int {
	for field != "" {
		if line, known := d.lines[field]; known {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 0
}

// Decode reads YAML into the struct that target points to. A field's key is its `key` tag; it must be there unless the
// tag says optional. Unlike the decoder of the library, this one refuses keys it does not know and calls every field by
// its path in the file, not by its Go type.
func Decode(name string, data []byte, target any) (*Document, error) {
	d := &Document{name: name, lines: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return d, fmt.Errorf("%s: expected a cluster, got an empty file", name)
	case err != nil:
		return d, fmt.Errorf("%s: %w", name, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return d, fmt.Errorf("%s: expected one YAML document, got more", name)
	}
	return d, d.decode(root.Content[0], reflect.ValueOf(target).Elem(), "")
}

func (d *Document) decode(node *yaml.Node, into reflect.Value, path string) error {
	if _, known := d.lines[path]; !known {
		d.lines[path] = node.Line
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if text, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := text.UnmarshalText([]byte(node.Value)); err != nil {
			return d.Fault(path, err.Error(), written(node))
		}
		return nil
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return d.decode(node, into.Elem(), path)
	case reflect.Struct:
		return d.mapping(node, into, path)
	case reflect.Slice:
		return d.sequence(node, into, path)
	}
	return d.scalar(node, into, path)
}

func (d *Document) mapping(node *yaml.Node, into reflect.Value, path string) error {
	keys, required := keysOf(into.Type())
	if node.Kind != yaml.MappingNode {
		return d.Fault(path, "the keys "+strings.Join(keys, ", "), written(node))
	}
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		d.lines[field] = key.Line
		index := slices.Index(keys, key.Value)
		switch {
		case index < 0:
			return d.Fault(field, "one of the keys "+strings.Join(keys, ", "), "an unknown key")
		case seen[key.Value]:
			return d.Fault(field, "each key once", "it again")
		}
		seen[key.Value] = true
		if err := d.decode(node.Content[i+1], into.Field(index), field); err != nil {
			return err
		}
	}
	for i, key := range keys {
		if required[i] && !seen[key] {
			return d.Fault(strings.TrimPrefix(path+"."+key, "."), "a value", "none")
		}
	}
	return nil
}

func keysOf(structure reflect.Type) (keys []string, required []bool) {
	for i := range structure.NumField() {
		key, optional := strings.CutSuffix(structure.Field(i).Tag.Get("key"), ",optional")
		keys, required = append(keys, key), append(required, !optional)
	}
	return keys, required
}

func (d *Document) sequence(node *yaml.Node, into reflect.Value, path string) error {
	if node.Kind != yaml.SequenceNode {
		return d.Fault(path, "a list", written(node))
	}
	into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
	for i, element := range node.Content {
		if err := d.decode(element, into.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Document) scalar(node *yaml.Node, into reflect.Value, path string) error {
	expected, err := "a name", error(nil)
	switch into.Kind() {
	case reflect.Int:
		var value int
		value, err = strconv.Atoi(node.Value)
		expected = "a whole number"
		into.SetInt(int64(value))
	case reflect.Float64:
		var value float64
		value, err = strconv.ParseFloat(node.Value, 64)
		expected = "a number"
		if math.IsNaN(value) || math.IsInf(value, 0) {
			err = strconv.ErrRange
		}
		into.SetFloat(value)
	default:
		into.SetString(node.Value)
	}
	if err != nil || node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return d.Fault(path, expected, written(node))
	}
	return nil
}

// written says what stands in the file.
func written(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "keys"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%.80q", node.Value)
}
