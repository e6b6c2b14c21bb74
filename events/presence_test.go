package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// example returns the data of the catalogue's example of a kind.
func example(t *testing.T, kind events.Kind) any {
	file, err := os.ReadFile("examples/" + string(kind) + ".v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var wire struct{ Data any }
	if err := json.Unmarshal(file, &wire); err != nil {
		t.Fatal(err)
	}
	return wire.Data
}

// without visits each JSON that comes about when one field, anywhere in a value, is left out or is null. It asks
// encoding/json for all it does: slow, and obviously right.
func without(value any, visit func(field string)) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			delete(value, name)
			visit(name)
			value[name] = nil
			visit(name)
			value[name] = inner
			without(inner, visit)
		}
	case []any:
		for _, inner := range value {
			without(inner, visit)
		}
	}
}

func TestAFieldThatIsAbsentIsNamedWhereverItIsAndHoweverItIsWritten(t *testing.T) {
	named := 0
	for _, row := range events.Catalogue {
		whole := example(t, row.Kind)
		without(whole, func(field string) {
			compact, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			var wide bytes.Buffer
			if err := json.Indent(&wide, compact, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			of, ofWide := events.Decode(compact, row.New()), events.Decode(wide.Bytes(), row.New())
			if (of == nil) != (ofWide == nil) || of != nil && of.Error() != ofWide.Error() {
				t.Errorf("%s without %s: %v, and with white space: %v", row.Kind, field, of, ofWide)
			}
			var lacks *events.FieldError
			if errors.As(of, &lacks) && lacks.Expected == "a value" {
				named++
				if !strings.HasSuffix(lacks.Field, field) {
					t.Errorf("%s without %s: names %s", row.Kind, field, lacks.Field)
				}
			}
		})
	}
	t.Logf("%d absent fields named", named)
	if named < 300 {
		t.Errorf("only %d absent fields were named", named)
	}
}
