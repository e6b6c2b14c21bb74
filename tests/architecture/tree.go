// Package architecture keeps the rules of the house as tests: who may import whom, what the deterministic rings must
// not touch, how long a function may be, what shared may hold. Rules that are not tests rot.
//
// It reads source text only (go/parser over a file system), so that a rule can be shown to catch its fault on a
// planted tree, and so that a file hidden behind a build tag is judged like any other.
package architecture

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Tree is the source of a checkout.
type Tree struct {
	Files   []File            // every Go file, ordered by path
	Modules []string          // folders with a go.mod
	Texts   map[string]string // READMEs, and go.work, by path
	Scripts map[string]string // Python, by path, without its tests
	Top     []string          // names at the top level
}

// File is one parsed Go file.
type File struct {
	Path   string // slash separated, from the top of the checkout
	Test   bool
	Lines  int
	Syntax *ast.File
	set    *token.FileSet
}

// Folder returns the folder that holds the file.
func (f File) Folder() string { return path.Dir(f.Path) }

// Line returns the line of a node.
func (f File) Line(node ast.Node) int { return f.set.Position(node.Pos()).Line }

// Length returns how many lines a node spans.
func (f File) Length(node ast.Node) int { return f.set.Position(node.End()).Line - f.Line(node) + 1 }

// Imports calls visit with the path and the local name of each import.
func (f File) Imports(visit func(spec *ast.ImportSpec, imported, name string)) {
	for _, spec := range f.Syntax.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser admits string literals only
		visit(spec, imported, localName(spec, imported))
	}
}

// localName is the name under which a file knows an import: the last element that is not a major version.
func localName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := path.Base(imported)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(imported))
	}
	return name
}

// Fault is a place where a rule is broken.
type Fault struct {
	Path   string
	Line   int // zero where the whole file or folder is meant
	Detail string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Detail
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Detail)
}

// ignoredBy returns whether git ignores a path, by the patterns of the checkout's .gitignore: names, and what is at the top behind a
// slash. Builds leave such files behind, and whoever follows the README. Exceptions and folders further down it knows not.
func ignoredBy(files fs.FS) (func(name string) bool, error) {
	text, err := fs.ReadFile(files, ".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return func(name string) bool {
		for _, pattern := range append(strings.Fields(string(text)), "/.git") {
			pattern, atTop := strings.CutPrefix(strings.TrimSuffix(pattern, "/"), "/")
			what := path.Base(name)
			if atTop {
				what = name
			}
			if is, _ := path.Match(pattern, what); is {
				return true
			}
		}
		return false
	}, nil
}

// Read parses a checkout, but for what git ignores.
func Read(files fs.FS) (*Tree, error) {
	tree := &Tree{Texts: map[string]string{}, Scripts: map[string]string{}}
	ignored, err := ignoredBy(files)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if ignored(name) || entry.Name() == "testdata" {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.Contains(name, "/") {
			tree.Top = append(tree.Top, name)
		}
		if entry.IsDir() {
			return nil
		}
		return tree.add(files, name)
	})
	return tree, err
}

func (t *Tree) add(files fs.FS, name string) error {
	base := path.Base(name)
	isGo := strings.HasSuffix(base, ".go")
	if base == "go.mod" {
		t.Modules = append(t.Modules, path.Dir(name))
	}
	isScript := strings.HasSuffix(base, ".py") && !strings.HasPrefix(base, "test_")
	if !isGo && !isScript && base != "README.md" && base != "go.work" {
		return nil
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if isScript {
		t.Scripts[name] = string(text)
		return nil
	}
	if !isGo {
		t.Texts[name] = string(text)
		return nil
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.Files = append(t.Files, File{
		Path: name, Test: strings.HasSuffix(name, "_test.go"),
		Lines: bytes.Count(text, []byte("\n")), Syntax: syntax, set: set,
	})
	return nil
}
