package architecture

import (
	"fmt"
	"go/ast"
	"slices"
)

// worldlyPackages are the packages of the standard library through which a clock, a scheduler, a log, a file, a
// socket or a dice would come in. Below each of them the same holds.
var worldlyPackages = []string{
	"context", "crypto/rand", "io/ioutil", "log", "net", "os", "path/filepath", "plugin", "runtime", "sync", "syscall",
	"unsafe",
}

// worldlyNames are the names of otherwise harmless packages that do the same.
var worldlyNames = map[string][]string{
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"time": {"After", "AfterFunc", "Local", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
}

// seededNames are the names of math/rand and math/rand/v2 that draw from a generator the caller seeded. All others
// draw from the process's own.
var seededNames = []string{
	"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf",
}

func checkPurity(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		if zone, _ := zoneOf(file.Folder()); !file.Test && (zone == pure || zone == machine) {
			faults = append(faults, impurities(file)...)
		}
	}
	return faults
}

// impurities lists where a file of ring 0 or 1 touches the world.
func impurities(file File) []Fault {
	var faults []Fault
	report := func(node ast.Node, what string) {
		faults = append(faults, Fault{file.Path, file.Line(node), what})
	}
	packages := map[string]string{}
	file.Imports(func(spec *ast.ImportSpec, imported, name string) {
		packages[name] = imported
		if under(imported, worldlyPackages) {
			report(spec, "imports "+imported)
		}
		if name == "." {
			report(spec, "imports "+imported+" without a name, which hides what comes from it")
		}
	})
	ast.Inspect(file.Syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			report(node, "starts a goroutine")
		case *ast.SelectStmt:
			report(node, "waits on channels, whose order is the scheduler's")
		case *ast.CallExpr:
			if name, ok := node.Fun.(*ast.Ident); ok && (name.Name == "print" || name.Name == "println") {
				report(node, "writes to standard error")
			}
		case *ast.SelectorExpr:
			if name, ok := node.X.(*ast.Ident); ok && worldlyName(packages[name.Name], node.Sel.Name) {
				report(node, fmt.Sprintf("uses %s.%s", name.Name, node.Sel.Name))
			}
		}
		return true
	})
	return faults
}

func worldlyName(imported, name string) bool {
	if imported == "math/rand" || imported == "math/rand/v2" {
		return !slices.Contains(seededNames, name)
	}
	return slices.Contains(worldlyNames[imported], name)
}
