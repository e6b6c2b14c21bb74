package events

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

// A number without a limit overflows what is computed of it: of a speed of 1e308 a step took no time.
func TestEachNumberOfAPayloadHasALimit(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, row := range Catalogue {
		unlimited(reflect.TypeOf(row.New()), seen, func(field string) {
			t.Errorf("%s of %s has no limit", field, row.Kind)
		})
	}
	if len(seen) < 40 {
		t.Errorf("looked at %d structs", len(seen))
	}
}

// unlimited tells of the fields of a type, and of those in it, that any finite number may have.
func unlimited(of reflect.Type, seen map[reflect.Type]bool, tell func(field string)) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		unlimited(of.Elem(), seen, tell)
	case reflect.Struct:
		if seen[of] {
			return
		}
		seen[of] = true
		for field := range of.Fields() {
			limits := LimitsOf(field)
			if field.Type.Kind() == reflect.Float64 && (math.IsInf(limits.Min, -1) || limits.Max == math.MaxFloat64) {
				tell(of.Name() + "." + field.Name)
			}
			unlimited(field.Type, seen, tell)
		}
	}
}

func TestARequestWhoseNumberIsBeyondItsLimitIsRefusedByTheFieldsName(t *testing.T) {
	whole, err := os.ReadFile("examples/plan.requested.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"speedFactor", "secondsBetweenFailures", "forwardSeconds", "currentComputeRatio"} {
		var event Event
		if err := json.Unmarshal(whole, &event); err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(event.Data), fmt.Sprintf("%q:", field))
		end := at + strings.IndexAny(string(event.Data[at:]), ",}")
		event.Data = []byte(fmt.Sprintf("%s%q: 1e300%s", event.Data[:at], field, event.Data[end:]))
		if _, err := Open[PlanRequest](event); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s of 1e300: %v", field, err)
		}
	}
}
