// Command driven has the machines of its build driven over standard input and output.
package main

import (
	"fmt"
	"os"

	"github.com/reknit/reknit/tests/simulation/builds/pipe"
)

func main() {
	if err := pipe.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "driven:", err)
		os.Exit(1)
	}
}
