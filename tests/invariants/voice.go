package invariants

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/reknit/reknit/events"
)

// ownVoice finds a node that speaks for another, and anybody who says what only others may say.
var ownVoice = Invariant{"everybody speaks only for itself", func(log *Log) []Violation {
	var violations []Violation
	for _, entries := range [][]*Entry{log.Events, log.Plans} {
		for _, entry := range entries {
			if what := foreignVoice(entry); what != "" {
				violations = append(violations, entry.violation("%s", what))
			}
		}
	}
	return violations
}}

// foreignVoice says why an entry's source may not have said it; it is empty where it may.
func foreignVoice(entry *Entry) string {
	row, known := entry.Kind.Row()
	if !known {
		return ""
	}
	if !row.Authorised(entry.Source) {
		return fmt.Sprintf("%s said by %s, expected %v", entry.Kind, entry.Source, row.SaidBy)
	}
	node, isNode := entry.node()
	if !isNode {
		return ""
	}
	about := strings.HasPrefix(string(entry.Kind), "membership.") || strings.HasPrefix(string(entry.Kind), "node.")
	if about && entry.Subject != node {
		return fmt.Sprintf("%s speaks of %s", node, entry.Subject)
	}
	if as := speaksAs(entry.Payload); as != "" && as != node {
		return fmt.Sprintf("%s speaks as %s", node, as)
	}
	return ""
}

// speaksAs returns the node that a payload says it is of, or nothing.
func speaksAs(payload events.Payload) string {
	if said := reflect.ValueOf(payload); said.Kind() == reflect.Pointer && !said.IsNil() {
		if node := said.Elem().FieldByName("Node"); node.IsValid() && node.Kind() == reflect.String {
			return node.String()
		}
	}
	return ""
}
