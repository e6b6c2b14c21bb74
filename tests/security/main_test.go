package security

import (
	"flag"
	"os"
	"testing"
)

// atATime is how many tests run at a time, unless the command line says otherwise: those that run beside others wait more than they compute.
const atATime = "4"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
