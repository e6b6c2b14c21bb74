package architecture

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// fronted is a sentence of a comment whose subject comes late: the reader has to keep its first clause in mind until then, and reads it
// twice. A hundred sentences of the codebases that we learn from have at most 0.3 of them.
var fronted = regexp.MustCompile(`(?:^|[.!?] )((?:Who|Whoever|Whom|Whose|Of|What|Whatever|Where|Wherever|That) [^.!?]{0,40})`)

func checkProse(tree *Tree) []Fault {
	var faults []Fault
	for _, file := range tree.Files {
		if file.Test {
			continue
		}
		names := documented(file)
		for _, comment := range file.Syntax.Comments {
			text := strings.Join(strings.Fields(comment.Text()), " ")
			text = strings.TrimPrefix(text, names[comment]+" ")
			for _, sentence := range fronted.FindAllStringSubmatch(text, -1) {
				faults = append(faults, Fault{file.Path, file.Line(comment), fmt.Sprintf("a sentence opens with %q", sentence[1])})
			}
		}
	}
	return faults
}

// documented returns the names of the functions and fields that comments document, with which these begin: one may be called What.
func documented(file File) map[*ast.CommentGroup]string {
	names := map[*ast.CommentGroup]string{}
	ast.Inspect(file.Syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			names[node.Doc] = node.Name.Name
		case *ast.Field:
			if len(node.Names) > 0 {
				names[node.Doc] = node.Names[0].Name
			}
		}
		return true
	})
	return names
}
