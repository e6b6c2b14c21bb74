package oracle

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// opticks returns the default text, Newton's "Opticks" of the Go distribution.
func opticks(tb testing.TB) []byte {
	tb.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		tb.Skipf("no default text: go env GOROOT: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "testdata",
		"Isaac.Newton-Opticks.txt"))
	if err != nil {
		tb.Skipf("no default text: %v", err)
	}
	return content
}

// defaultTraining is the default model on the default text.
func defaultTraining(tb testing.TB) (Training, *text.Text, []byte) {
	tb.Helper()
	content := opticks(tb)
	shape := model.DefaultShape(2)
	samples, err := text.New(content, shape.Context, shape.Window, 1)
	if err != nil {
		tb.Fatal(err)
	}
	shape.Vocabulary = len(samples.Vocabulary())
	return Training{Shape: shape, Adam: model.DefaultAdam(), Seed: 1, GlobalBatch: 16}, samples, content
}

// unigramEntropy is the loss, in nats per character, of knowing only how often each byte occurs.
func unigramEntropy(content []byte) float64 {
	var counts [256]float64
	for _, character := range content {
		counts[character]++
	}
	entropy := 0.0
	for _, count := range counts {
		if count > 0 {
			entropy -= count / float64(len(content)) * math.Log(count/float64(len(content)))
		}
	}
	return entropy
}

func TestTheLossOnRealTextFallsUnderTheUnigramEntropy(t *testing.T) {
	if testing.Short() {
		t.Skip("trains the default model for 200 steps, about 10 s")
	}
	training, samples, content := defaultTraining(t)
	training.Steps = 200
	_, losses, err := Run(training, samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	last, unigram := mean(losses[180:]), unigramEntropy(content)
	t.Logf("loss at step 0 %.3f, mean of steps 180 to 199 %.3f, unigram entropy %.3f", losses[0], last, unigram)
	if uniform := math.Log(float64(training.Shape.Vocabulary)); math.Abs(losses[0]-uniform) > 0.2 {
		t.Errorf("first loss is %.3f: expected about the uniform distribution's, %.3f", losses[0], uniform)
	}
	if last > unigram-0.3 {
		t.Errorf("loss after 200 steps is %.3f: expected at least 0.3 under the unigram entropy, %.3f", last, unigram)
	}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

func BenchmarkSample(b *testing.B) {
	training, samples, _ := defaultTraining(b)
	layers, err := NewLayers(training.Shape, training.Seed)
	if err != nil {
		b.Fatal(err)
	}
	worker := NewWorker(training.Shape)
	index := 0
	for b.Loop() {
		if index%training.GlobalBatch == 0 {
			worker.Sums.Reset()
		}
		if err := worker.AccumulateRange(layers, samples, index, index+1); err != nil {
			b.Fatal(err)
		}
		index++
	}
}

func BenchmarkUpdate(b *testing.B) {
	training, samples, _ := defaultTraining(b)
	layers, err := NewLayers(training.Shape, training.Seed)
	if err != nil {
		b.Fatal(err)
	}
	worker := NewWorker(training.Shape)
	if err := worker.AccumulateRange(layers, samples, 0, 1); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Update(layers, worker.Sums, training.Adam, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	training, _, _ := defaultTraining(b)
	layers, err := NewLayers(training.Shape, training.Seed)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Digest(layers, 0)
	}
}
