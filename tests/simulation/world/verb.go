package world

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// numbers are the arguments that are numbers.
var numbers = []string{"UNIT", "FACTOR", "TIMES", "SHARE", "SECONDS", "COUNT"}

type verb struct {
	form string
	do   func(*World, args)
}

// args are the arguments of a fault by the words of its form, and "TIME".
type args map[string]string

func (a args) node(w *World) *node {
	for w.byName(a["NODE"]) == nil {
		w.AddNode()
	}
	return w.byName(a["NODE"])
}

func (a args) number(name string) float64 {
	number, err := strconv.ParseFloat(a[name], 64)
	if err != nil {
		panic(err) // see parse
	}
	return number
}

func (a args) seconds() time.Duration {
	return time.Duration(a.number("SECONDS") * float64(time.Second))
}

// after has the fault ended when its time is over, if it has one.
func (a args) after(w *World, do func()) {
	if long, err := time.ParseDuration(a["TIME"]); err == nil {
		w.after(long, do)
	}
}

// nearest lists the forms all of whose own words a fault has, one a line, and every form where there is none.
func nearest(words string) string {
	var forms []string
	for _, v := range verbs {
		if !slices.ContainsFunc(v.own(), func(word string) bool { return !slices.Contains(strings.Fields(words), word) }) {
			forms = append(forms, v.form)
		}
	}
	return cmp.Or(strings.Join(forms, "\n"), Forms())
}

// Forms lists what can be done, one a line.
func Forms() string {
	var forms []string
	for _, v := range verbs {
		forms = append(forms, v.form)
	}
	return strings.Join(forms, "\n")
}

// own returns the words of the form that are no arguments.
func (v verb) own() []string {
	return slices.DeleteFunc(strings.Fields(v.form), func(word string) bool { return word != strings.ToLower(word) })
}

func (v verb) parse(words string) (args, bool) {
	got, form, a := strings.Fields(words), strings.Fields(v.form), args{}
	if n := len(got); n >= 2 && got[n-2] == "for" {
		a["TIME"], got = got[n-1], got[:n-2]
	}
	if len(got) != len(form) {
		return nil, false
	}
	for i, word := range form {
		switch {
		case word == strings.ToLower(word) && word != got[i]:
			return nil, false
		case word == "SERVICE" && !slices.Contains(serviceNames, got[i]):
			return nil, false
		case word == "STORE" && !slices.Contains(storeNames, got[i]):
			return nil, false
		case word == "SITE" && !strings.HasPrefix(got[i], "s"):
			return nil, false
		case (word == "NODE" || word == "PEER") && !strings.HasPrefix(got[i], "n"):
			return nil, false
		case (word == "NODE" || word == "PEER") && slices.Contains(serviceNames, got[i]):
			return nil, false
		case slices.Contains(numbers, word):
			if _, err := strconv.ParseFloat(got[i], 64); err != nil {
				return nil, false
			}
		}
		a[word] = got[i]
	}
	return a, true
}
