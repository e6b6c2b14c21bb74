package service

import (
	"reflect"
	"slices"
	"strings"
)

// Variable is one variable of a service's environment.
type Variable struct{ Name, Default, Unit, Reason string }

// Variables lists what a Config reads from the environment, from its struct tags.
func Variables(config any) []Variable {
	var all []Variable
	for _, field := range reflect.VisibleFields(reflect.TypeOf(config)) {
		if setting, is := settingOf(field); is {
			all = append(all, Variable{setting.name, setting.byDefault, setting.unitAndRange(), field.Tag.Get("reason")})
		}
	}
	return all
}

// Misspelt maps the variables of an environment that are almost settings of a Config, and none, to these. A variable that is not
// alike may be another program's: one environment may hold the settings of several.
func Misspelt(config any, environment []string) map[string]string {
	settings, meant := Variables(config), map[string]string{}
	isSetting := func(name string) bool {
		return slices.ContainsFunc(settings, func(v Variable) bool { return v.Name == name })
	}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		nearest := slices.MinFunc(settings, func(v, w Variable) int { return distance(v.Name, name) - distance(w.Name, name) }).Name
		if strings.HasPrefix(name, "REKNIT_") && !isSetting(name) && distance(nearest, name) <= 2 {
			meant[name] = nearest
		}
	}
	return meant
}

// distance is how many letters must be changed, added or left out to make one word of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from what was read of a to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := before
			if a[i] != b[j] {
				changed++
			}
			before, row[j+1] = row[j+1], min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
