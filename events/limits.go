package events

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// MostWhole is the greatest whole number of a payload: every language has those up to it (RFC 7493, 2.2).
const MostWhole = 1<<53 - 1

// Limits are what the values of a field may be, as its `is` tag says. Services check them, and the schemas are generated from
// them: neither can say what the other does not. A tag holds, parted by commas,
//
//	token, digest   the form of a text; "reason" and "address" are its lengths
//	one=a|b         the texts that there are
//	min=0, max=1    of a number. A whole number is at least 0 where the tag gives no min
//	rate            a number that is 0 or at least 1
//	units           a range that ends at MostUnits at most
//	count=1..8      how many elements a list has, or characters a text; the last may be left out
//	each=token      what each element of a list is
//
// A field that may be left out may be zero as well, whatever else the tag says: Go does not tell the two apart.
type Limits struct {
	Form           string   // token, digest or nothing
	Words          []string // nil: any
	Shortest, Most int      // characters, or elements; Most 0: any number
	Min, Max       float64  // of a number
	Rate, Units    bool
	Each           string // the tag of an element
	Optional       bool
}

// mostReason is how many characters of a reason may travel.
const mostReason = 1024

const mostAddress = 256

// LimitsOf reads the tags of a field.
func LimitsOf(field reflect.StructField) Limits {
	_, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	limits := limitsOf(field.Type, field.Tag.Get("is"))
	limits.Optional = strings.HasPrefix(options, "omit")
	return limits
}

func limitsOf(t reflect.Type, tag string) Limits {
	limits := Limits{Min: math.Inf(-1), Max: math.MaxFloat64}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isWhole(t) {
		limits.Min, limits.Max = 0, MostWhole
	}
	for word := range strings.SplitSeq(tag, ",") {
		limits.read(word)
	}
	return limits
}

func (l *Limits) read(word string) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "token", "digest":
		l.Form = name
	case "reason":
		l.Most = mostReason
	case "address":
		l.Shortest, l.Most = 1, mostAddress
	case "one":
		l.Words = strings.Split(value, "|")
	case "min":
		l.Min = number(value)
	case "max":
		l.Max = number(value)
	case "rate":
		l.Rate, l.Min = true, 0
	case "units":
		l.Units = true
	case "count":
		least, most, _ := strings.Cut(value, "..")
		l.Shortest, l.Most = int(number(least)), int(number(most))
	case "each":
		l.Each = value
	case "":
	default:
		panic("events: a tag has no " + strconv.Quote(word))
	}
}

func number(text string) float64 {
	if text == "" {
		return 0
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("events: a tag's " + err.Error())
	}
	return value
}

func isNumeric(t reflect.Type) bool { return isWhole(t) || t.Kind() == reflect.Float64 }

func isWhole(t reflect.Type) bool {
	return t.Kind() == reflect.Int || t.Kind() == reflect.Int64 || t.Kind() == reflect.Uint64
}

// within is a check of a payload whose fields are what their tags say, or the first that is not.
func within(payload any) check {
	value := reflect.ValueOf(payload).Elem()
	if wrong := limiterOf(value.Type())(value); wrong != nil {
		return check{err: wrong}
	}
	return check{}
}

// limiter tells what is wrong with a value; nil: nothing.
type limiter func(value reflect.Value) *FieldError

// limiters are those of each struct that was asked for: reading tags takes longer than what they ask.
var limiters sync.Map

func limiterOf(t reflect.Type) limiter {
	if known, ok := limiters.Load(t); ok {
		return known.(limiter)
	}
	type part struct {
		index int
		name  string
		check limiter
	}
	var parts []part
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if check := limiterOfField(field.Type, LimitsOf(field)); check != nil {
			parts = append(parts, part{i, name, check})
		}
	}
	check := limiter(func(value reflect.Value) *FieldError {
		for _, part := range parts {
			if wrong := part.check(value.Field(part.index)); wrong != nil {
				if part.name == "" { // embedded
					return wrong
				}
				return wrong.within(part.name)
			}
		}
		return nil
	})
	if len(parts) == 0 {
		check = nil
	}
	limiters.Store(t, check)
	return check
}

func limiterOfField(t reflect.Type, limits Limits) limiter {
	if limits.Units {
		return limits.ofUnits
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := limiterOfField(t.Elem(), limits)
		return func(value reflect.Value) *FieldError {
			if value.IsNil() || inner == nil {
				return nil
			}
			return inner(value.Elem())
		}
	case reflect.Struct:
		return limiterOf(t)
	case reflect.Slice:
		return limits.ofList(t)
	case reflect.Map:
		return ofMap(limiterOfField(t.Elem(), limitsOf(t.Elem(), limits.Each)))
	case reflect.String:
		return limits.ofText()
	case reflect.Bool:
		return nil
	case reflect.Float64:
		return func(value reflect.Value) *FieldError { return limits.number(value.Float(), value) }
	}
	return limits.ofWhole(t)
}

// ofWhole checks a whole number. A plan of 1,000 nodes has tens of thousands.
func (l Limits) ofWhole(t reflect.Type) limiter {
	least, most := int64(l.Min), int64(l.Max)
	if t.Kind() == reflect.Uint64 {
		return func(value reflect.Value) *FieldError {
			if number := value.Uint(); number >= uint64(least) && number <= uint64(most) {
				return nil
			}
			return l.number(float64(value.Uint()), value)
		}
	}
	return func(value reflect.Value) *FieldError {
		if number := value.Int(); number >= least && number <= most {
			return nil
		}
		return l.number(float64(value.Int()), value)
	}
}

// ofUnits checks that a range of units ends where there are some: that it begins before its end is a rule.
func (l Limits) ofUnits(value reflect.Value) *FieldError {
	if units := value.Interface().(Range); units.First < 0 || units.End < 1 || units.End > MostUnits {
		return &FieldError{Expected: fmt.Sprintf("0 <= first < end <= %d", MostUnits), Got: fmt.Sprint(units)}
	}
	return nil
}

func (l Limits) ofList(t reflect.Type) limiter {
	var each limiter
	if t.Elem().Kind() != reflect.Uint8 {
		each = limiterOfField(t.Elem(), limitsOf(t.Elem(), l.Each))
	}
	if each == nil && l.Shortest == 0 && l.Most == 0 {
		return nil
	}
	return func(value reflect.Value) *FieldError {
		count := value.Len()
		if (count < l.Shortest || l.Most > 0 && count > l.Most) && !(l.Optional && count == 0) {
			return &FieldError{Expected: l.counted(), Got: strconv.Itoa(count)}
		}
		for i := 0; each != nil && i < count; i++ {
			if wrong := each(value.Index(i)); wrong != nil {
				return wrong.within(fmt.Sprintf("[%d]", i))
			}
		}
		return nil
	}
}

func (l Limits) counted() string {
	switch {
	case l.Most == 0:
		return fmt.Sprintf("at least %d", l.Shortest)
	case l.Shortest == 0:
		return fmt.Sprintf("at most %d", l.Most)
	}
	return fmt.Sprintf("%d to %d", l.Shortest, l.Most)
}

func ofMap(each limiter) limiter {
	if each == nil {
		return nil
	}
	return func(value reflect.Value) *FieldError {
		for key, element := range value.Seq2() {
			if wrong := each(element); wrong != nil {
				return wrong.within(key.String())
			}
		}
		return nil
	}
}

func (l Limits) ofText() limiter {
	switch {
	case l.Form == "token":
		return l.text("1 to 64 characters of A-Z a-z 0-9 - _", Token)
	case l.Form == "digest":
		return l.text("sha256: and 64 hex digits", isDigest)
	case l.Words != nil:
		known := map[string]bool{}
		for _, word := range l.Words {
			known[word] = true
		}
		return l.text(strings.Join(l.Words, " or "), func(text string) bool { return known[text] })
	case l.Most == 0 && l.Shortest > 0:
		return l.text("a text", func(text string) bool { return text != "" })
	case l.Shortest > 0:
		return l.text("host:port", func(text string) bool { return text != "" && utf8.RuneCountInString(text) <= l.Most })
	case l.Most > 0:
		return func(value reflect.Value) *FieldError {
			if text := value.String(); len(text) > l.Most && utf8.RuneCountInString(text) > l.Most {
				return &FieldError{Expected: fmt.Sprintf("at most %d characters", l.Most),
					Got: fmt.Sprintf("%d characters", utf8.RuneCountInString(text))}
			}
			return nil
		}
	}
	return nil
}

func (l Limits) text(expected string, holds func(string) bool) limiter {
	return func(value reflect.Value) *FieldError {
		if text := value.String(); !holds(text) && !(l.Optional && text == "") {
			return &FieldError{Expected: expected, Got: fmt.Sprintf("%.80q", text)}
		}
		return nil
	}
}

// number checks a number. A whole one beyond 2^53 is rounded here to what is still beyond MostWhole.
func (l Limits) number(number float64, value reflect.Value) *FieldError {
	isRate := !l.Rate || number == 0 || number >= 1
	isFinite := !math.IsNaN(number) && !math.IsInf(number, 0)
	if isFinite && number >= l.Min && number <= l.Max && isRate || l.Optional && number == 0 {
		return nil
	}
	return &FieldError{Expected: l.bounds(number), Got: fmt.Sprint(value)}
}

func (l Limits) bounds(number float64) string {
	switch least, most := l.Min, l.Max; {
	case l.Rate:
		return fmt.Sprintf("1 to %s, or 0", plain(most))
	case math.IsInf(least, -1):
		return "a finite number"
	case most == math.MaxFloat64:
		return fmt.Sprintf("a finite number of at least %s", plain(least))
	case most == MostWhole && number < least:
		return fmt.Sprintf("at least %s", plain(least))
	case most == MostWhole:
		return "at most 2^53 - 1"
	default:
		return fmt.Sprintf("%s to %s", plain(least), plain(most))
	}
}

// plain writes a number as people do.
func plain(number float64) string {
	if number == math.Trunc(number) && math.Abs(number) <= MostWhole {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return strconv.FormatFloat(number, 'g', -1, 64)
}
