package service

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/events"
)

// Misconfigured is why a program does not begin: a setting, or its command line, is not as expected, nor will be at the next start.
type Misconfigured struct{ Err error }

func (m Misconfigured) Error() string { return m.Err.Error() }

func (m Misconfigured) Unwrap() error { return m.Err }

const ExitMisconfigured = 78 // the exit status of a program that is not to be started again as it is; Go's own, for a panic, is 2

// Read takes a Config, to which config points, from an environment. Its error, Misconfigured, names each variable that defies its tags:
//
//	unit   what it is. Some units have a form, which is checked: see forms
//	is     its range, parted by commas: min=1, over=0 (more than that), max=65535. A text has it for its length. No number is
//	       below 0 where there is no min; none is infinite
//
// A method Validate says what tags cannot, if Config has one.
func Read(config any, environment map[string]string) error {
	unread, faults := parse(config, environment)
	into := reflect.ValueOf(config).Elem()
	for _, field := range reflect.VisibleFields(into.Type()) {
		setting, is := settingOf(field)
		if !is {
			continue
		}
		value, given := into.FieldByIndex(field.Index), environment[setting.name]
		if setting.measuresLength(field.Type) {
			given = strconv.Itoa(value.Len()) // it may be a secret
		}
		if unread[field.Name] || !setting.holds(value) {
			given = given[strings.LastIndex(given, "@")+1:] // a URL's password stands before it
			faults = append(faults, fmt.Errorf("%s: expected %s, got %.80q", setting.name, setting.expected(field.Type), given))
		}
	}
	if validated, has := config.(interface{ Validate() error }); has && len(faults) == 0 {
		faults = append(faults, validated.Validate())
	}
	if err := errors.Join(faults...); err != nil {
		return Misconfigured{err}
	}
	return nil
}

// parse returns which fields have values that are none of their types, and what else is wrong.
func parse(config any, environment map[string]string) (unread map[string]bool, faults []error) {
	err := env.ParseWithOptions(config, env.Options{Environment: environment})
	if err == nil {
		return nil, nil
	}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return nil, []error{err}
	}
	unread = map[string]bool{}
	for _, one := range all.Errors {
		if none := (env.ParseError{}); errors.As(one, &none) {
			unread[none.Name] = true
		} else {
			faults = append(faults, one)
		}
	}
	return unread, faults
}

// setting is a variable of an environment, as the tags of a field tell it.
type setting struct {
	name, byDefault, unit, example string
	least, over, most              string // as the field's type is written; empty: not said
}

func settingOf(field reflect.StructField) (s setting, is bool) {
	tag := field.Tag
	s = setting{name: tag.Get("env"), byDefault: tag.Get("envDefault"), unit: tag.Get("unit"), example: tag.Get("example")}
	for word := range strings.SplitSeq(tag.Get("is"), ",") {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "min":
			s.least = value
		case "over":
			s.over = value
		case "max":
			s.most = value
		case "":
		default:
			panic("service: the tag of " + s.name + " has no " + strconv.Quote(word))
		}
	}
	return s, s.name != ""
}

// withBounds says the bounds that a number has where its tag says none.
func (s setting) withBounds(t reflect.Type) setting {
	if isNumber(t) && s.over == "" {
		s.least = cmp.Or(s.least, "0")
	}
	if isNumber(t) && t.Kind() != reflect.Float64 && t != reflect.TypeFor[time.Duration]() {
		s.most = cmp.Or(s.most, strconv.Itoa(events.MostWhole))
	}
	return s
}

// unitAndRange is what the tags say.
func (s setting) unitAndRange() string {
	between := ""
	switch {
	case s.least != "" && s.most != "":
		between = s.least + " to " + s.most
	case s.over != "" && s.most != "":
		between = "more than " + s.over + ", at most " + s.most
	case s.over != "":
		between = "more than " + s.over
	case s.least != "":
		between = "at least " + s.least
	case s.most != "":
		between = "at most " + s.most
	default:
		return s.unit
	}
	return s.unit + ", " + between
}

// expected is what a value of the field should be.
func (s setting) expected(t reflect.Type) string {
	if form, has := forms[s.unit]; has {
		return form.expected
	}
	expected := s.withBounds(t).unitAndRange()
	if example := cmp.Or(s.example, s.byDefault); example != "" {
		expected += ", such as " + example
	}
	return expected
}

// holds reports whether a value is as the tags say. A text that is empty, or a list, is not set.
func (s setting) holds(value reflect.Value) bool {
	if s.measuresLength(value.Type()) {
		return value.Len() == 0 || s.within(float64(value.Len()), reflect.TypeFor[int]())
	}
	if form, has := forms[s.unit]; has {
		return allOf(form, value)
	}
	switch {
	case !isNumber(value.Type()):
		return true
	case value.CanInt():
		return s.within(float64(value.Int()), value.Type())
	case value.CanUint():
		return s.within(float64(value.Uint()), value.Type())
	}
	return s.within(value.Float(), value.Type())
}

// within reports whether a number is in the range, and finite.
func (s setting) within(number float64, t reflect.Type) bool {
	s = s.withBounds(t)
	return !math.IsNaN(number) && !math.IsInf(number, 0) &&
		(s.least == "" || number >= bound(s.least, t)) && (s.over == "" || number > bound(s.over, t)) &&
		(s.most == "" || number <= bound(s.most, t))
}

// bound is the number that a tag says, as a value of the type has it: a duration's in nanoseconds.
func bound(text string, t reflect.Type) float64 {
	if t == reflect.TypeFor[time.Duration]() {
		duration, err := time.ParseDuration(text)
		if err != nil {
			panic("service: a tag's " + err.Error())
		}
		return float64(duration)
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("service: a tag's " + err.Error())
	}
	return number
}

func (s setting) measuresLength(t reflect.Type) bool {
	return t.Kind() == reflect.String && s.least+s.over+s.most != ""
}

// isNumber reports whether a type is written as a number. A log level is a number that is written as a word.
func isNumber(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return t.PkgPath() == "" || t == reflect.TypeFor[time.Duration]()
	}
	return false
}

// form is that of a unit's texts.
type form struct {
	expected string
	is       func(text string) bool
}

const token = "1 to 64 characters of A-Z a-z 0-9 - _" //nolint:gosec // what an id looks like

var forms = map[string]form{
	"id":                          {token, events.Token},
	"ids, with commas":            {"ids with commas between them, each " + token, events.Token},
	"host:port":                   {"host:port, with a port of 0 to 65535", isAddress},
	"URL, or several with commas": {"the URL of a NATS server, or several with commas, such as nats://127.0.0.1:4222", isServer},
}

// allOf reports whether the parts of a text, or the elements of a list, have a form.
func allOf(form form, value reflect.Value) bool {
	parts, isList := value.Interface().([]string)
	switch text := value.String(); {
	case isList || text == "":
	case strings.Contains(form.expected, "commas"):
		for part := range strings.SplitSeq(text, ",") {
			parts = append(parts, strings.TrimSpace(part))
		}
	default:
		parts = []string{text}
	}
	return !slices.ContainsFunc(parts, func(part string) bool { return !form.is(part) })
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	return err == nil && isPort(port)
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// isServer reports whether a NATS client can try the URL. One without a scheme is a host, with or without a port.
func isServer(text string) bool {
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	address, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, address.Scheme) {
		return false
	}
	isIPv6 := strings.HasPrefix(address.Host, "[")
	return address.Hostname() != "" && strings.Contains(address.Hostname(), ":") == isIPv6 && (address.Port() == "" || isPort(address.Port()))
}
