package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// What attributes of an event look like, in the regular expressions of the schemas (tests/contract). Only days that there are
// have a date: 30 February is none.
const (
	AttributePattern   = "^[a-z0-9]+$" // its name
	TraceparentPattern = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
	SignaturePattern   = "^[A-Za-z0-9_-]{86}$"
	DataSchemaPattern  = "^[a-z]+:[A-Za-z0-9._~/-]{1,256}$"
	TimePattern        = "^(" + day + ")T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"

	day = "[0-9]{4}-(01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|" +
		"[0-9]{4}-(04|06|09|11)-(0[1-9]|[12][0-9]|30)|" +
		"[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|" +
		"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
)

const (
	dataAttribute    = "data"
	datarefAttribute = "dataref"
)

// attributes tells, of the attributes whose form nothing else checks, what it is and whether a text has it.
var attributes = map[string]struct {
	expected string
	holds    func(text string) bool
}{
	"datacontenttype": {"application/json", func(text string) bool { return text == "application/json" }},
	"dataschema":      {"a URI", regexp.MustCompile(DataSchemaPattern).MatchString},
	"time":            {"RFC 3339, as 2026-11-20T10:31:18.4Z", regexp.MustCompile(TimePattern).MatchString},
	"cause":           {"the id of an event", Token},
	"traceparent":     {"W3C trace context, version 00", regexp.MustCompile(TraceparentPattern).MatchString},
	datarefAttribute:  {"sha256: and 64 hex digits", isDigest},
	"signature":       {"86 characters of URL-safe base64", regexp.MustCompile(SignaturePattern).MatchString},
	"specversion":     anyText, "id": anyText, "type": anyText, "source": anyText, "subject": anyText, "cluster": anyText,
}

var anyText = struct {
	expected string
	holds    func(text string) bool
}{"a text", func(string) bool { return true }}

var attributeName = regexp.MustCompile(AttributePattern)

// CheckAttributes refuses of an event as it travels what the schemas of all events forbid and the CloudEvents library takes.
// O(attributes).
func CheckAttributes(message []byte) error {
	var found map[string]json.RawMessage
	if err := json.Unmarshal(message, &found); err != nil || found == nil {
		if !json.Valid(message) {
			return errors.New("message: expected JSON")
		}
		return errors.New("message: expected a CloudEvent, an object")
	}
	for name, value := range found {
		if err := checkAttribute(name, value); err != nil {
			return err
		}
	}
	_, inside := found[dataAttribute]
	_, apart := found[datarefAttribute]
	if inside && apart {
		return errors.New("data: expected none beside a dataref")
	}
	return nil
}

func checkAttribute(name string, value json.RawMessage) error {
	if name == dataAttribute {
		return nil
	}
	if !attributeName.MatchString(name) {
		return fmt.Errorf("%.40q: expected the name of an attribute, of a-z 0-9", name)
	}
	form, isOurs := attributes[name]
	var said any
	_ = json.Unmarshal(value, &said) // it is valid
	switch said := said.(type) {
	case string:
		if isOurs && !form.holds(said) {
			return fmt.Errorf("%s: expected %s, got %.80q", name, form.expected, said)
		}
		return nil
	case bool:
		if !isOurs {
			return nil
		}
	case float64:
		if !isOurs && said == float64(int32(said)) {
			return nil
		}
	}
	if !isOurs {
		form.expected = "a text, true, false or a whole number of 32 bits, as attributes are"
	}
	return fmt.Errorf("%s: expected %s, got %s", name, form.expected, strings.TrimSpace(fmt.Sprintf("%.80s", value)))
}
