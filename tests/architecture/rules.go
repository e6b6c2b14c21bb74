package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Rule is one rule of the house. Check returns every place where it is broken, in the tree's order.
type Rule struct {
	Name  string
	Why   string
	Check func(*Tree) []Fault
}

// Rules lists every rule.
var Rules = []Rule{
	{"imports point inwards", "a decision that knows no broker and no other service can be tested and replaced alone",
		checkImports},
	{"the deterministic rings touch no world", "the simulator replays them byte for byte", checkPurity},
	{"functions are short", "a function is read on one screen", checkFunctions},
	{"files hold one idea", "a file is read in one sitting", checkFiles},
	{"shared stays small", "what everybody may use, everybody must know", checkShared},
	{"packages are named after what they decide", "a bag has no owner and no end", checkNames},
	{"code is introduced", "a newcomer learns from the folder what it is for", checkIntroductions},
	{"comments name their subject first", "a sentence is read once, in Go, Python and READMEs", checkProse},
	{"modules are in the workspace", "a module outside of it is built by nobody", checkWorkspace},
	{"the top level is the map", "the first look decides", checkTopLevel},
}

const (
	functionLines     = 70
	testFunctionLines = 100 // a table of cases is easier to read in one piece
	fileLines         = 400
)

func checkFunctions(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		limit := functionLines
		if file.Test {
			limit = testFunctionLines
		}
		ast.Inspect(file.Syntax, func(node ast.Node) bool {
			switch node.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				if length := file.Length(node) - documentation(file, node); length > limit {
					faults = append(faults,
						Fault{
							file.Path, file.Line(node), fmt.Sprintf("function of %d lines, at most %d", length, limit),
						})
				}
				return false // what is inside is part of it
			}
			return true
		})
	}
	return faults
}

// documentation returns how many lines of a node's span are its doc comment.
func documentation(file File, node ast.Node) int {
	function, ok := node.(*ast.FuncDecl)
	if !ok || function.Doc == nil {
		return 0
	}
	return file.set.Position(function.Type.Func).Line - file.Line(function)
}

func checkFiles(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		if !file.Test && file.Lines > fileLines {
			faults = append(faults, Fault{file.Path, 0, fmt.Sprintf("%d lines, at most %d", file.Lines, fileLines)})
		}
	}
	return faults
}

func checkShared(tree *Tree) []Fault {
	var faults []Fault
	strangers := map[string]bool{}
	for _, file := range tree.Files {
		if zone, _ := zoneOf(file.Folder()); zone != wires {
			continue
		}
		if sharedPackages[file.Folder()] == "" {
			strangers[file.Folder()] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(strangers)) {
		faults = append(faults, Fault{folder, 0, "not in the list of shared packages (tests/architecture/zone.go)"})
	}
	return faults
}

// bags are names that say nothing about what is inside.
var bags = []string{"base", "common", "helper", "helpers", "lib", "misc", "models", "tools", "types", "util", "utils"}

func checkNames(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		name := strings.TrimSuffix(file.Syntax.Name.Name, "_test")
		if slices.Contains(bags, name) || slices.Contains(bags, path.Base(file.Folder())) {
			faults = append(faults,
				Fault{
					file.Path, 0, fmt.Sprintf("package %s in %s is named after nothing it does", name, file.Folder()),
				})
		}
	}
	return faults
}

// sentence is a first line that says something: no heading, badge or blank.
var sentence = regexp.MustCompile(`^["'(\p{L}][^\n]{20,}`)

func checkIntroductions(tree *Tree) []Fault {
	var faults []Fault
	introduced := map[string]bool{}
	for _, file := range tree.Files {
		introduced[file.Folder()] = introduced[file.Folder()] || file.Syntax.Doc != nil
	}
	for _, folder := range slices.Sorted(maps.Keys(introduced)) {
		if _, hasReadme := tree.Texts[folder+"/README.md"]; !hasReadme && !introduced[folder] {
			faults = append(faults, Fault{folder, 0, "has neither a README.md nor a package comment"})
		}
	}
	for _, module := range tree.Modules {
		if _, hasReadme := tree.Texts[module+"/README.md"]; !hasReadme {
			faults = append(faults, Fault{module, 0, "module without a README.md"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tree.Texts)) {
		// the top page may begin with its title
		if strings.Contains(name, "/") && !sentence.MatchString(tree.Texts[name]) {
			faults = append(faults, Fault{name, 1, "the first line must say what the folder is for"})
		}
	}
	return faults
}

var useLine = regexp.MustCompile(`(?m)^\s*(?:use )?\./(\S+)`)

func checkWorkspace(tree *Tree) []Fault {
	var faults []Fault
	used := map[string]bool{}
	for _, match := range useLine.FindAllStringSubmatch(tree.Texts["go.work"], -1) {
		used[match[1]] = true
	}
	for _, module := range tree.Modules {
		if !used[module] && apart[module] == "" {
			faults = append(faults, Fault{module, 0, "module not in go.work"})
		}
		delete(used, module)
	}
	for _, missing := range slices.Sorted(maps.Keys(used)) {
		faults = append(faults, Fault{"go.work", 0, fmt.Sprintf("uses %s, which has no go.mod", missing)})
	}
	return faults
}

func checkTopLevel(tree *Tree) []Fault {
	var faults []Fault
	for _, name := range tree.Top {
		if !slices.Contains(topLevel, name) {
			faults = append(faults, Fault{name, 0, "not in the list of the top level (tests/architecture/zone.go)"})
		}
	}
	return faults
}
