package architecture

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheTreeKeepsEveryRule(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) == 0 || len(tree.Modules) == 0 {
		t.Fatal("no source found: the test must run inside the checkout")
	}
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			for _, fault := range rule.Check(tree) {
				t.Error(fault)
			}
			if t.Failed() {
				t.Log("why:", rule.Why)
			}
		})
	}
}

// sound is a small house that breaks no rule; each plant changes one file of it.
func sound() map[string]string {
	return map[string]string{
		"go.work":                           "go 1.26\n\nuse (\n\t./events\n\t./services/planner\n\t./services/reknit\n\t./shared\n\t./tests\n)\n",
		"README.md":                         "# Reknit\n",
		"events/go.mod":                     "module m\n",
		"events/README.md":                  "The words that services say to each other.\n",
		"events/event.go":                   "// Package events holds words.\npackage events\n\nimport \"time\"\n\nvar _ = time.Now\n",
		"shared/go.mod":                     "module m\n",
		"shared/README.md":                  "The wires on which the words travel, and nothing else.\n",
		"shared/bus/bus.go":                 "// Package bus carries.\npackage bus\n\nimport (\n\t_ \"github.com/nats-io/nats.go\"\n\t_ \"github.com/reknit/reknit/events\"\n)\n",
		"services/planner/go.mod":           "module m\n",
		"services/planner/README.md":        "Finds the plan that trains the most samples a second.\n",
		"services/planner/run.go":           "package planner\n\nimport (\n\t_ \"os\"\n\n\t_ \"github.com/reknit/reknit/services/planner/machine\"\n\t_ \"github.com/reknit/reknit/shared/bus\"\n)\n",
		"services/planner/machine/m.go":     "// Package machine decides.\npackage machine\n\nimport (\n\t_ \"github.com/reknit/reknit/events\"\n\t_ \"github.com/reknit/reknit/services/planner/search\"\n)\n",
		"services/planner/search/search.go": "// Package search finds.\npackage search\n\nimport \"math/rand/v2\"\n\nvar _ = rand.New(rand.NewPCG(1, 2))\n",
		"services/reknit/go.mod":            "module m\n",
		"services/reknit/README.md":         "The command that starts, watches and explains everything.\n",
		"services/reknit/dev.go":            "package main\n\nimport _ \"github.com/reknit/reknit/services/planner\"\n",
		"tests/go.mod":                      "module m\n",
		"tests/README.md":                   "The judge, who may import everything and whom nobody imports.\n",
	}
}

// plants are faults, each with the rule that must catch it and a part of what it must say.
var plants = []struct{ rule, path, source, says string }{
	{"imports point inwards", "events/x.go", imports("github.com/cloudevents/sdk-go/v2/event"),
		"standard library only"},
	{"imports point inwards", "events/x.go", imports(modulePrefix + "shared/bus"), "words may not import wires"},
	{"imports point inwards", "events/x_test.go", imports("pgregory.net/rapid"), "standard library only"},
	{"imports point inwards", "shared/bus/x.go", imports(modulePrefix + "services/planner"),
		"services never import each other"},
	{"imports point inwards", "shared/bus/x.go", imports("github.com/sirupsen/logrus"), "third-party"},
	{"imports point inwards", "services/planner/search/x.go", imports(modulePrefix + "events"),
		"ring 0 may not import words"},
	{"imports point inwards", "services/planner/search/x_test.go", imports(modulePrefix + "events"),
		"ring 0 may not import words"},
	{"imports point inwards", "services/planner/search/x.go", imports(modulePrefix + "services/planner/machine"),
		"ring 0 may not import ring 1"},
	{"imports point inwards", "services/planner/search/x.go", imports("gonum.org/v1/gonum/mat"),
		"standard library only"},
	{"imports point inwards", "services/planner/machine/x.go", imports(modulePrefix + "shared/bus"),
		"ring 1 may not import wires"},
	{"imports point inwards", "services/planner/machine/x.go", imports(modulePrefix + "services/planner"),
		"ring 1 may not import ring 2"},
	{"imports point inwards", "services/planner/internal/x/x.go", imports(modulePrefix + "services/monitor/detect"),
		"services never import each other"},
	{"imports point inwards", "services/planner/x_test.go", imports(modulePrefix + "services/monitor"),
		"services never import each other"},
	{"imports point inwards", "services/reknit/x.go", imports(modulePrefix + "tests/chaos"), "nobody imports tests"},
	{"imports point inwards", "deploy/x.go", imports("fmt"), "Go code belongs"},
	{"the deterministic rings touch no world", "services/planner/search/x.go", imports("context"), "imports context"},
	{"the deterministic rings touch no world", "services/planner/search/x.go", imports("sync/atomic"),
		"imports sync/atomic"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go", imports("log/slog"),
		"imports log/slog"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go", imports("net/http"),
		"imports net/http"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go", imports("crypto/rand"),
		"imports crypto/rand"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go", uses("time", "time.Now()"),
		"uses time.Now"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go",
		"// Package machine.\npackage machine\n\nimport clock \"time\"\n\nvar _ = clock.Since\n", "uses clock.Since"},
	{"the deterministic rings touch no world", "services/planner/machine/x.go",
		"// Package machine.\npackage machine\n\nimport . \"time\"\n\nvar _ = Now()\n", "without a name"},
	{"the deterministic rings touch no world", "services/planner/search/x.go", uses("math/rand/v2", "rand.IntN(6)"),
		"uses rand.IntN"},
	{"the deterministic rings touch no world", "services/planner/search/x.go", uses("math/rand", "rand.Shuffle"),
		"uses rand.Shuffle"},
	{"the deterministic rings touch no world", "services/planner/search/x.go", uses("fmt", "fmt.Println"),
		"uses fmt.Println"},
	{"the deterministic rings touch no world", "services/planner/search/x.go",
		"package search\n\nfunc f() { println() }\n", "standard error"},
	{"the deterministic rings touch no world", "services/planner/search/x.go",
		"package search\n\nfunc f() { go f() }\n", "goroutine"},
	{"the deterministic rings touch no world", "services/planner/search/x.go",
		"package search\n\nfunc f() { select {} }\n", "channels"},
	{"functions are short", "services/planner/search/x.go", function(71), "71 lines, at most 70"},
	{"functions are short", "tests/chaos/x.go", "// Package x.\n" + function(71), "71 lines, at most 70"},
	{"functions are short", "services/planner/search/x_test.go", function(101), "101 lines, at most 100"},
	{"functions are short", "services/planner/search/x.go",
		strings.Replace(function(71), "func f()", "var f = func()", 1), "71 lines"},
	{"files hold one idea", "services/planner/search/x.go", "package search\n" + strings.Repeat("\n", 400),
		"401 lines"},
	{"shared stays small", "shared/retry/x.go", "// Package retry.\npackage retry\n", "not in the list"},
	{"shared stays small", "shared/bus/internal/x/x.go", "// Package x.\npackage x\n", "not in the list"},
	{"packages are named after what they decide", "services/planner/util/x.go", "// Package util.\npackage util\n",
		"named after nothing"},
	{"packages are named after what they decide", "services/planner/search/helpers/x.go", "// Package h.\npackage h\n",
		"named after nothing"},
	{"code is introduced", "services/planner/place/x.go", "package place\n", "neither a README.md"},
	{"code is introduced", "services/planner/README.md", "# Planner\n", "first line"},
	{"comments name their subject first", "services/planner/search/x.go",
		"package search\n\n// f is called once. Where nobody\n// waits it returns.\nfunc f() {}\n", "opens with \"Where nobody waits"},
	{"comments name their subject first", "services/planner/README.md",
		"Finds the plan that trains the most samples a second.\n\n```\nWhat code prints is no prose\n```\n\n* Layers move.\n* Who\n  fetches them waits.\n", "opens with \"Who fetches"},
	{"comments name their subject first", "services/planner/plan.py",
		"def plan():\n    \"\"\"Returns a plan. Where there is\n    none, None.\"\"\"\n", "opens with \"Where there is none"},
	{"comments name their subject first", "services/planner/plan.py",
		"import sys\n# What a plan is\n# stands in events.\n", "opens with \"What a plan is stands"},
	{"modules are in the workspace", "go.work", strings.Replace(sound()["go.work"], "\t./shared\n", "", 1),
		"shared: module not in go.work"},
	{"modules are in the workspace", "go.work", sound()["go.work"] + "use ./gone\n", "uses gone"},
	{"the top level is the map", "NOTES.md", "x\n", "not in the list"},
}

func imports(path string) string {
	return fmt.Sprintf("// Package x.\npackage x\n\nimport _ %q\n", path)
}

func uses(path, expression string) string {
	return fmt.Sprintf("// Package x.\npackage x\n\nimport %q\n\nvar _ = %s\n", path, expression)
}

func function(lines int) string {
	return "package x\n\nfunc f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
}

func TestEachPlantedFaultIsCaughtByItsRuleAlone(t *testing.T) {
	caught := map[string]bool{}
	for _, plant := range plants {
		t.Run(plant.rule+" "+plant.says, func(t *testing.T) {
			house := sound()
			house[plant.path] = plant.source
			faults := faultsOf(t, house)
			if len(faults) != 1 || !strings.HasPrefix(faults[0], plant.rule+": ") ||
				!strings.Contains(faults[0], plant.says) {
				t.Errorf("%s:\n%s\nfound %q, expected one fault of %q that says %q", plant.path, plant.source, faults,
					plant.rule, plant.says)
			}
		})
		caught[plant.rule] = true
	}
	for _, rule := range Rules {
		if !caught[rule.Name] {
			t.Errorf("no fault is planted for the rule %q", rule.Name)
		}
	}
}

func TestTheSoundHouseHasNoFault(t *testing.T) {
	if faults := faultsOf(t, sound()); len(faults) > 0 {
		t.Error(faults)
	}
}

// A user who follows the README has these in the clone, and runs the tests there.
func TestWhatGitIgnoresBreaksNoRule(t *testing.T) {
	house := sound()
	house[".gitignore"] = "/bin/\n/*-data/\n/model.pt\n*.out\n"
	for _, name := range []string{"bin/reknit", "reknit-data/nats/x.go", "model.pt", "shared/bus/profile.out", ".git/config"} {
		house[name] = "no Go"
	}
	if faults := faultsOf(t, house); len(faults) > 0 {
		t.Error(faults)
	}
	house["data/model.pt"] = ""
	if faults := faultsOf(t, house); len(faults) != 1 || !strings.Contains(faults[0], "data") {
		t.Errorf("found %q, expected the folder that git does not ignore", faults)
	}
}

func TestAModuleWithoutReadmeIsCaught(t *testing.T) {
	house := sound()
	delete(house, "shared/README.md")
	faults := faultsOf(t, house)
	if len(faults) != 1 || !strings.Contains(faults[0], "module without a README.md") {
		t.Errorf("found %q, expected the missing README", faults)
	}
}

func faultsOf(t *testing.T, house map[string]string) []string {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range house {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := Read(files)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, rule := range Rules {
		for _, fault := range rule.Check(tree) {
			faults = append(faults, rule.Name+": "+fault.String())
		}
	}
	return faults
}
