package dev

import (
	"strings"
	"testing"
	"time"
)

func TestTheDefaultScriptDoesEverythingOnce(t *testing.T) {
	actions, err := ParseScript(strings.NewReader(DefaultScript(6)))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, action := range actions {
		count[action.Verb]++
	}
	if count["kill"] != 5 || count["join"] != 1 || count["leave"] != 1 || count["connect"] != 1 ||
		count["disconnect"] != 1 {
		t.Fatalf("got %v", count)
	}
}

func TestAnActionMayFollowAnotherWhateverIsUnderWay(t *testing.T) {
	actions, err := ParseScript(strings.NewReader("at 5 kill n1 # first\n\nafter 120ms kill planner"))
	if err != nil || len(actions) != 2 || actions[1].After != 120*time.Millisecond || actions[1].Line != 3 {
		t.Fatalf("%v %+v", err, actions)
	}
}

func TestABadLineIsNamedWithWhatWasExpected(t *testing.T) {
	for script, want := range map[string]string{
		"at 5 explode n1":            "line 1: expected kill, join",
		"\nat soon kill n1":          "line 2: at: expected a step",
		"after 5 kill n1":            "after: expected a duration",
		"at 5 connect n1":            "connect: expected 2 name(s)",
		"at 5 join planner":          "join: expected trainers",
		"at 5 kill nats":             "expected trainers such as n1, or one of monitor",
		"at 5 connect n1 n1":         "expected two trainers, got n1 twice",
		"at 5 join n8\nat 4 kill n1": "line 2: at: expected a step from 5 on",
		"when 5 kill n1":             "expected at or after",
		"at 5 kill":                  "at STEP VERB NAME",
		"at 5 kill n1 n2 n3 n4":      "kill: expected 1 name(s)",
	} {
		if _, err := ParseScript(strings.NewReader(script)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", script, err, want)
		}
	}
}

func TestAScriptMayBeginWithAByteOrderMark(t *testing.T) {
	actions, err := ParseScript(strings.NewReader("\ufeffat 5 kill n1\r\nafter 120ms kill planner\r\n"))
	if err != nil || len(actions) != 2 || actions[0].AtStep != 5 {
		t.Errorf("%+v, %v", actions, err)
	}
}
