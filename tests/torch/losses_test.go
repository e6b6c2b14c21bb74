package torch

import (
	"strings"
	"testing"
)

func TestLossesMayDifferByRoundingAndNotByOtherSamples(t *testing.T) {
	if err := CompareLosses([]float64{5, 4, 3}, []float64{5, 4, 3 + 1e-6}); err != nil {
		t.Error(err)
	}
	err := CompareLosses([]float64{5, 4, 3}, []float64{5, 4.01, 3})
	if err == nil || !strings.Contains(err.Error(), "expected at most") {
		t.Errorf("expected an error that names the limit, got %v", err)
	}
}
