package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// fronted is a sentence of a comment whose subject comes late: the reader has to keep its first clause in mind until then, and reads it
// twice. A hundred sentences of the codebases that we learn from have at most 0.3 of them.
var fronted = regexp.MustCompile(`(?:^|[.!?] )((?:Who|Whoever|Whom|Whose|Of|What|Whatever|Where|Wherever|That) [^.!?]{0,40})`)

func checkProse(tree *Tree) []Fault {
	faults := append(checkComments(tree), checkTexts(tree.Texts, paragraphs)...)
	return append(faults, checkTexts(tree.Scripts, remarks)...)
}

func checkComments(tree *Tree) []Fault {
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

// checkTexts looks at texts by path, of which partsOf returns the prose, a paragraph each.
func checkTexts(texts map[string]string, partsOf func(string) []string) []Fault {
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, part := range partsOf(texts[name]) {
			for _, sentence := range fronted.FindAllStringSubmatch(strings.Join(strings.Fields(part), " "), -1) {
				faults = append(faults, Fault{name, 0, fmt.Sprintf("a sentence opens with %q", sentence[1])})
			}
		}
	}
	return faults
}

var (
	fenced    = regexp.MustCompile("(?s)```.*?```")
	between   = regexp.MustCompile(`\n\s*(?:\n|\||(?:[*-]|\d+\.) )`) // two paragraphs, rows of a table, or entries of a list
	docstring = regexp.MustCompile(`(?s)""".*?"""|(?:^|\n)[ \t]*#[^\n]*(?:\n[ \t]*#[^\n]*)*`)
	marks     = regexp.MustCompile(`"""|(?m)^[ \t]*#+ ?`)
)

// paragraphs returns those of a page in Markdown, without its code.
func paragraphs(page string) []string {
	return between.Split(fenced.ReplaceAllString("\n"+page, "\n\n"), -1)
}

// remarks returns the paragraphs of the docstrings of a Python file, and of the comments that have lines of their own.
func remarks(script string) []string {
	var found []string
	for _, remark := range docstring.FindAllString(script, -1) {
		found = append(found, paragraphs(marks.ReplaceAllString(remark, ""))...)
	}
	return found
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
