package training

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// BenchmarkStep is a step of the default model, 12 samples of Newton's "Opticks", in one process.
func BenchmarkStep(b *testing.B) {
	for name, chains := range map[string][]chain{
		"1x1": {{12, "a", []int{12}}},
		"2x3": {{6, "a b c", []int{4, 8, 12}}, {6, "d e f", []int{4, 8, 12}}},
	} {
		b.Run(name, func(b *testing.B) {
			config := opticks(b)
			config.Steps = uint64(b.N)
			c := newCluster(b, config)
			var names []string
			for _, chain := range chains {
				names = append(names, strings.Fields(chain.nodes)...)
			}
			b.ResetTimer()
			c.begin(planOf(config, chains...), names...)
			c.finish()
		})
	}
}

func opticks(b *testing.B) Config {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skipf("no default text: go env GOROOT: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "testdata",
		"Isaac.Newton-Opticks.txt"))
	if err != nil {
		b.Skipf("no default text: %v", err)
	}
	shape := model.DefaultShape(2)
	samples, err := text.New(content, shape.Context, shape.Window, 1)
	if err != nil {
		b.Fatal(err)
	}
	shape.Vocabulary = len(samples.Vocabulary())
	return Config{Shape: shape, Adam: model.DefaultAdam(), Seed: 1, GlobalBatch: 12, MicroBatch: 1, Samples: samples}
}
