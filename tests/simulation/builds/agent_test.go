package builds

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestEachActionOfAnAgentIsReadFromTheOtherBuild(t *testing.T) {
	source, err := os.ReadFile("../../../services/agent/machine/action.go")
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, action := range actions {
		read = append(read, fmt.Sprintf("%T", action))
	}
	declared := regexp.MustCompile(`(?m)^func \((\w+)\) action\(\)`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 20 {
		t.Fatalf("expected the actions of an agent in action.go, got %d", len(declared))
	}
	for _, action := range declared {
		if !slices.Contains(read, "machine."+action[1]) {
			t.Errorf("expected %s among the actions that are read from the other build", action[1])
		}
	}
}
