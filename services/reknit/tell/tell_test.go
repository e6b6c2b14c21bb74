package tell

import (
	"bytes"
	"testing"
)

func TestALongTextGoesOnBelowItself(t *testing.T) {
	var got bytes.Buffer
	table := Table(&got)
	Row(table, "one two three four", 9, "a", "b")
	Row(table, "five", 9, "c", "d")
	table.Flush()
	if want := "a  b  one two\n      three\n      four\nc  d  five\n"; got.String() != want {
		t.Errorf("wrote\n%s\nexpected\n%s", &got, want)
	}
}

func TestRunsOfLayersAreWrittenOnce(t *testing.T) {
	if got := Runs([]int{5, 0, 1, 2, 7, 8}); got != "0-2,5,7-8" {
		t.Errorf("layers are written %s", got)
	}
}

func TestFiguresKeepTheirUnits(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1_023_600: "0.976 MiB", 1_023_000: "999 KiB", 1536: "1.5 KiB", 24 << 30: "24 GiB", 5 << 50: "5.12e+03 TiB",
	} {
		if got := Bytes(bytes); got != want {
			t.Errorf("%d bytes are written %s, expected %s", bytes, got, want)
		}
	}
	for seconds, want := range map[float64]string{
		0: "0 s", 2e-6: "2 us", 0.0125: "12.5 ms", 1.5: "1.5 s", 14400: "14400 s", 9999.7: "10000 s",
	} {
		if got := Seconds(seconds); got != want {
			t.Errorf("%v seconds are written %s, expected %s", seconds, got, want)
		}
	}
}

func TestEqualPipelinesAreWrittenOnce(t *testing.T) {
	for shape, want := range map[string]string{"3": "3", "3+3": "2x3", "2+3+3+3": "2+3x3", "1+2": "1+2"} {
		if got := Folded(shape); got != want {
			t.Errorf("%s is written %s, expected %s", shape, got, want)
		}
	}
}
