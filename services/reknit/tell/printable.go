package tell

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Printable writes texts without what would speak to a terminal. Reasons, names and logs are anybody's words: a member of
// another institution must not clear an operator's screen, write the clipboard or turn a line around.
func Printable(w io.Writer) io.Writer {
	if _, is := w.(*printable); is {
		return w
	}
	return &printable{to: w}
}

// Line returns a text as one line of what is printable.
func Line(text string) string {
	return strings.Map(func(letter rune) rune {
		if unicode.IsSpace(letter) {
			return ' '
		}
		return shown(letter)
	}, text)
}

// Terminal returns the terminal that a command writes to, for a bar that moves; nil where it is none.
func Terminal(w io.Writer) io.Writer {
	if plain, is := w.(*printable); is {
		w = plain.to
	}
	if file, is := w.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

type printable struct {
	to   io.Writer
	rest []byte // the beginning of a letter that was not written whole, three bytes at most
}

func (p *printable) Write(text []byte) (int, error) {
	all := append(p.rest, text...)
	end := len(all)
	for back := 1; back < utf8.UTFMax && back <= len(all); back++ {
		if at := len(all) - back; utf8.RuneStart(all[at]) {
			if !utf8.FullRune(all[at:]) {
				end = at
			}
			break
		}
	}
	p.rest = append([]byte(nil), all[end:]...)
	_, err := io.WriteString(p.to, strings.Map(func(letter rune) rune {
		if letter == '\n' || letter == '\t' {
			return letter
		}
		return shown(letter)
	}, string(all[:end])))
	return len(text), err
}

// shown leaves a letter out that is not printable: control characters, and those that format others.
func shown(letter rune) rune {
	if unicode.IsPrint(letter) {
		return letter
	}
	return -1
}
