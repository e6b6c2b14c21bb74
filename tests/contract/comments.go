package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

const eventsFolder = "../../events"

// comments are the doc comments of a package's structs ("Join") and fields ("Join.Node"), each on one line.
type comments map[string]string

func parseComments() (comments, error) {
	entries, err := os.ReadDir(eventsFolder)
	if err != nil {
		return nil, err
	}
	found := comments{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(eventsFolder, entry.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			found.collect(declaration)
		}
	}
	return found, nil
}

func (c comments) collect(declaration ast.Decl) {
	general, ok := declaration.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, spec := range general.Specs {
		named, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		c[named.Name.Name] = oneLine(general.Doc)
		if structure, ok := named.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					c[named.Name.Name+"."+name.Name] = oneLine(field.Doc) + oneLine(field.Comment)
				}
			}
		}
	}
}

func oneLine(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}
