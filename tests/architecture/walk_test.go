package architecture

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
)

const negotiator = "services/negotiator/"

// steps are the functions that the walks of the negotiator's README name: `file: function`.
var steps = regexp.MustCompile("`([a-z]+\\.go): ([A-Za-z]+)`")

func TestTheWalksThroughTheNegotiatorNameFunctionsThatAreThere(t *testing.T) {
	tree, readme := negotiatorsTree(t)
	declared := map[string]bool{}
	for _, file := range tree {
		for _, declaration := range file.Syntax.Decls {
			if function, is := declaration.(*ast.FuncDecl); is {
				declared[path.Base(file.Path)+": "+function.Name.Name] = true
			}
		}
	}
	found := steps.FindAllStringSubmatch(readme, -1)
	if len(found) < 30 {
		t.Fatalf("the README names %d functions: expected the walks of a join, a failure and a commit", len(found))
	}
	for _, step := range found {
		if !declared[step[1]+": "+step[2]] {
			t.Errorf("the README names %s of %s, which is not there", step[2], step[1])
		}
	}
}

// decisions are the functions that bring about what comes next. The rules of advance.go alone call them.
var decisions = []string{"open", "openNext", "openLast", "abort", "commit", "hold", "gather", "complete", "stop", "takeUp", "restore", "preCopy",
	"prepare", "transfer", "lastSnapshot", "askPlanner", "refuseThose", "heed"}

func TestNoHandlerOfTheNegotiatorDecidesWhatComesNext(t *testing.T) {
	tree, _ := negotiatorsTree(t)
	for _, file := range tree {
		name := path.Base(file.Path)
		if name == "advance.go" {
			continue
		}
		ast.Inspect(file.Syntax, func(node ast.Node) bool {
			selector, is := node.(*ast.SelectorExpr)
			if !is || !slices.Contains(decisions, selector.Sel.Name) {
				return true
			}
			if receiver, is := selector.X.(*ast.Ident); is && receiver.Name == "m" {
				t.Errorf("%s:%d calls %s: expected a note in the agenda, which a rule of advance.go takes off", file.Path, file.Line(selector),
					selector.Sel.Name)
			}
			return true
		})
	}
}

// negotiatorsTree returns the files of the negotiator's machine, and its README.
func negotiatorsTree(t *testing.T) (files []File, readme string) {
	t.Helper()
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tree.Files {
		if file.Folder() == negotiator+"machine" && !file.Test {
			files = append(files, file)
		}
	}
	text, err := os.ReadFile("../../" + negotiator + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	return files, string(text)
}
