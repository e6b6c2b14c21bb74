package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

func checkImports(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		file.Imports(func(spec *ast.ImportSpec, imported, _ string) {
			if refusal := refuseImport(file, imported); refusal != "" {
				faults = append(faults,
					Fault{file.Path, file.Line(spec), fmt.Sprintf("imports %s: %s", imported, refusal)})
			}
		})
	}
	return faults
}

// refuseImport says why a file may not import a path; empty when it may.
func refuseImport(file File, imported string) string {
	from, service := zoneOf(file.Folder())
	if from == nowhere {
		return "Go code belongs into events, shared, services or tests"
	}
	if folder, ours := strings.CutPrefix(imported, modulePrefix); ours {
		return refuseOurs(from, service, folder)
	}
	if standard(imported) || from == judge {
		return ""
	}
	if from == words {
		return "events depends on the standard library only"
	}
	if file.Test {
		return ""
	}
	if from == pure || from == machine {
		return string(from) + " depends on the standard library only"
	}
	for _, prefix := range slices.Sorted(maps.Keys(thirdParty)) {
		if strings.HasPrefix(imported, prefix) || imported+"/" == prefix {
			return ""
		}
	}
	return "not in the list of third-party modules (tests/architecture/zone.go)"
}

// refuseOurs judges an import between two folders of the project.
func refuseOurs(from zone, service, folder string) string {
	to, owner := zoneOf(folder)
	switch {
	case from == judge:
		return ""
	case to == judge:
		return "nobody imports tests"
	case owner != "" && owner != service && !slices.Contains(mayReach[service], owner):
		return "services never import each other"
	case !slices.Contains(mayImport[from], to):
		return fmt.Sprintf("%s may not import %s", from, to)
	}
	return ""
}

// standard reports whether a path is of the standard library: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}
