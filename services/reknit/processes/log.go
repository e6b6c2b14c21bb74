package processes

import (
	"io"
	"os"
	"strings"
	"unicode"
)

// mostOfLog is how much of the end of a log is read for its last line.
const mostOfLog = 4096

// lastLine is what a process said last, on a line of its own and indented: most often why it ended. It is empty where it
// said nothing behind a place of its log.
func lastLine(log string, from int64) string {
	file, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		_, _ = file.Seek(max(from, info.Size()-mostOfLog), io.SeekStart)
	}
	text, _ := io.ReadAll(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return "\n  " + strings.Map(printable, last)
	}
	return ""
}

// printable leaves out what would speak to a terminal.
func printable(letter rune) rune {
	if unicode.IsPrint(letter) {
		return letter
	}
	return -1
}
