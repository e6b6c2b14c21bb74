package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/tests/torch"
)

func TestThePictureHasEachWorkerEachStepAndEachAct(t *testing.T) {
	steps := []torch.Step{
		{Worker: "w1", Number: 1, Loss: 5, Under: 1, Time: 100}, {Worker: "w2", Number: 1, Loss: 5, Under: 1, Time: 100},
		{Worker: "w1", Number: 2, Loss: 4, Under: 1, Time: 101}, {Worker: "w2", Number: 2, Loss: 4, Under: 1, Time: 101},
		{Worker: "w1", Number: 3, Loss: 3, Under: 2, Time: 104},
	}
	acts := []act{{what: "kill -9 of <a> node", at: time.Unix(102, 0)}}
	file := filepath.Join(t.TempDir(), "made", "picture.svg")
	if err := draw(file, steps, acts, []float64{5, 4, 3}); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	for err == nil {
		_, err = decoder.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the picture is no XML: %v", err)
	}
	for text, count := range map[string]int{
		"<rect ": 1 + len(steps), ">w1<": 1, ">w2<": 1, "kill -9 of": 1, "<polyline ": 2,
	} {
		if got := strings.Count(string(picture), text); got != count {
			t.Errorf("%q: expected %d times, got %d", text, count, got)
		}
	}
}
