package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The attributes of an event as regular expressions, which the schemas have, too (tests/contract). Only days that there are
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
	"traceparent":     {"W3C trace context, version 00", isTraceparent},
	datarefAttribute:  {"sha256: and 64 hex digits", isDigest},
	"signature": {"86 characters of URL-safe base64", func(text string) bool {
		return len(text) == 86 && only(text, "-_", 'A', 'Z', 'a', 'z', '0', '9')
	}},
	"specversion": anyText, "id": anyText, "type": anyText, "source": anyText, "subject": anyText, "cluster": anyText,
}

var anyText = struct {
	expected string
	holds    func(text string) bool
}{"a text", func(string) bool { return true }}

// isTraceparent says what TraceparentPattern does: most events have one, and a regular expression takes ten times as long.
func isTraceparent(text string) bool {
	return len(text) == 55 && text[:3] == "00-" && text[35] == '-' && text[52] == '-' &&
		only(text[3:35]+text[36:52]+text[53:], "", 'a', 'f', '0', '9')
}

// textOf returns a JSON text; is is false for any other value.
func textOf(value json.RawMessage) (text string, is bool) {
	if value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

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
	if name == "" || !only(name, "", 'a', 'z', '0', '9') {
		return fmt.Errorf("%.40q: expected the name of an attribute, of a-z 0-9", name)
	}
	form, isOurs := attributes[name]
	text, isText := textOf(value)
	switch {
	case !isText && !isOurs && isFlagOrNumber(value), isText && !isOurs:
		return nil
	case isText && form.holds(text):
		return nil
	case isText:
		return fmt.Errorf("%s: expected %s, got %.80q", name, form.expected, text)
	case !isOurs:
		form.expected = "a text, true, false or a whole number of 32 bits, as attributes are"
	}
	return fmt.Errorf("%s: expected %s, got %s", name, form.expected, strings.TrimSpace(fmt.Sprintf("%.80s", value)))
}

func isFlagOrNumber(value json.RawMessage) bool {
	var number int32
	return string(value) == "true" || string(value) == "false" || value[0] != 'n' && json.Unmarshal(value, &number) == nil
}
