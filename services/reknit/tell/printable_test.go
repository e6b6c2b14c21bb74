package tell

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const hostile = "n1 objects: \x1b[2J\x1b]52;c;Y3Vyb\x07\r\u202e\u009b31m \x9b31m é 日本\tend\n"

func TestNothingThatACommandWritesSpeaksToTheTerminal(t *testing.T) {
	var output strings.Builder
	command := Command(&cobra.Command{Use: "x", RunE: func(c *cobra.Command, _ []string) error {
		table := Table(Showing(c.OutOrStdout(), strings.ToUpper))
		_, err := table.Write([]byte(hostile))
		table.Flush()
		c.Print(hostile)
		for i := range []byte(hostile) { // in pieces that are no letters
			_, _ = c.OutOrStdout().Write([]byte(hostile)[i : i+1])
		}
		return err
	}})
	command.SetOut(&output)
	command.SetErr(&output)
	command.SetArgs(nil)
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := output.String(); strings.ContainsAny(got, "\x1b\x07\r\u202e\u009b") || strings.Contains(got, "\x9b3") {
		t.Errorf("it writes %q", got)
	} else if strings.Count(got, "é 日本") != 2 || !strings.Contains(got, "É 日本") || strings.Count(got, "\n") != 3 {
		t.Errorf("it writes %q, expected all that is printable, in three lines", got)
	}
}

func TestWhatIsNotWellIsOneLine(t *testing.T) {
	err := NotWell{Problems: []string{"n1 is lost: \x1b[2J\r\nAll is well."}}
	if got := err.Error(); got != "not well: n1 is lost: [2J  All is well." {
		t.Errorf("it says %q", got)
	}
}
