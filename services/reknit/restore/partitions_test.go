package restore

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// keeping is a plan of testdata whose pipelines keep the partitions listed.
func keeping(t *testing.T, path string, partitions ...[]int) string {
	t.Helper()
	var plan events.Plan
	if err := json.Unmarshal([]byte(text(t, path)), &plan); err != nil {
		t.Fatal(err)
	}
	for i := range plan.Pipelines {
		plan.Pipelines[i].Partitions = partitions[i]
	}
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return saved(t, string(data))
}

// A layer is 128 MiB of parameters and 384 MiB in each of two partitions of its optimizer state.
func TestPartitionsMoveOnTheirOwnAndAreToldByName(t *testing.T) {
	from, to := keeping(t, before, []int{0}, []int{0, 1}, []int{1}), keeping(t, after, []int{0, 1}, []int{0, 1})
	got := documented(t, "--from", from, "--to", to)
	if got.NaiveBytes != 18*layer || got.Figures.Restart.Bytes != 18*layer {
		t.Errorf("a restart reads %d bytes, expected 18 layers, each whole", got.NaiveBytes)
	}
	told := output(t, restored, "--from", from, "--to", to)
	moved := int64(0)
	for _, transfer := range got.Plan.Migration.Transfers {
		want := int64(384 << 20)
		if transfer.Unit < 9 {
			want = 128 << 20
		}
		if moved += transfer.Bytes; transfer.Bytes != want {
			t.Errorf("row %d is %d bytes long, expected %d", transfer.Unit, transfer.Bytes, want)
		}
		if line := fmt.Sprintf("\n%s ", events.UnitName(transfer.Unit, 9)); !strings.Contains(told, line) {
			t.Errorf("expected the line %q in\n%s", line, told)
		}
	}
	if moved != got.BytesMoved || moved <= 3*layer {
		t.Errorf("%d bytes in transfers, %d said to move, expected more than where every holder has all", moved,
			got.BytesMoved)
	}
	for _, says := range []string{"what ", "stage 0: layers 0-2, partition 0 ", "layers 0-1, partitions 0-1 "} {
		if !strings.Contains(told, says) {
			t.Errorf("expected %q in\n%s", says, told)
		}
	}
}

func TestPlansAndModelMustAgreeOnThePartitions(t *testing.T) {
	from, to := keeping(t, before, []int{0}, []int{0, 1}, []int{1}), keeping(t, after, []int{0, 1, 2}, []int{0, 1})
	expectRefusal(t, "three partitions",
		to+": pipelines: expected the 2 partitions of the optimizer state of "+from+", got 3", "--from", from, "--to",
		to)
	expectRefusal(t, "partitions",
		from+": pipelines: expected the 0 partitions of the optimizer state of "+before+", got 2", "--from", before,
		"--to", from)
	expectRefusal(t, "a whole model", links+":9: model.optimizerPartitions: expected the 2 of the plans, got 0",
		"--from", from, "--to", from, "--links", links)
	file := saved(t, strings.Replace(text(t, links), `"layers": 9,`, `"layers": 9, "optimizerPartitions": 2,`, 1))
	if got := documented(t, "--from", from, "--to", from, "--links", file); got.BytesMoved != 0 {
		t.Errorf("from a plan to itself %d bytes move", got.BytesMoved)
	}
}

func TestAPartitionThatNobodyHoldsIsTheReasonWhyNot(t *testing.T) {
	from, to := keeping(t, before, []int{0}, []int{1}, []int{0}), keeping(t, after, []int{0, 1}, []int{0, 1})
	if err := Run([]string{"--from", from, "--to", to}, nil); err == nil ||
		!strings.Contains(err.Error(), "partition 1 of layer") || !strings.Contains(err.Error(), ": no node holds it") {
		t.Errorf("error %v, expected one that names what n5 alone had", err)
	}
}
