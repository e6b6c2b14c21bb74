package dev

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func FuzzScript(f *testing.F) {
	f.Add(DefaultScript(6))
	f.Add("after 120ms disconnect any # whom it likes\n")
	f.Fuzz(func(t *testing.T, text string) {
		actions, err := ParseScript(strings.NewReader(text))
		if err != nil {
			return
		}
		var written strings.Builder
		for _, action := range actions {
			when := fmt.Sprintf("at %d", action.AtStep)
			if action.AtStep == 0 {
				when = "after " + action.After.String()
			}
			fmt.Fprintln(&written, when, action)
		}
		back, err := ParseScript(strings.NewReader(written.String()))
		for i := range actions {
			actions[i].Line = i + 1
		}
		if err != nil || !reflect.DeepEqual(back, actions) {
			t.Errorf("%+v came back as %+v, %v", actions, back, err)
		}
	})
}
