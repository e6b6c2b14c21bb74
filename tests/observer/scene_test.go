package observer

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func pair() Scene {
	scene := newScene()
	scene.Plan = events.Plan{
		Generation: 2, Nodes: []events.Member{{Node: "n1"}, {Node: "n2"}, {Node: "spare"}},
		Pipelines: []events.Pipeline{
			{Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 1}}}},
			{Stages: []events.Stage{{Node: "n2", Layers: events.Range{End: 1}}}},
		},
	}
	return scene
}

func tell(scene *Scene, node string, generation, step uint64, digest string) {
	scene.compare(events.Digests{
		Node: node, Generation: generation, Step: step, Units: []events.UnitDigest{{Unit: 0, Digest: digest}},
	})
}

func TestStepsAreComparedWhateverTheOrderInWhichNodesTellThem(t *testing.T) {
	scene := pair()
	for _, step := range []uint64{100, 50, 150} {
		tell(&scene, "n1", 2, step, "a")
	}
	tell(&scene, "n2", 1, 150, "a") // under the plan before
	tell(&scene, "n2", 2, 100, "a")
	if step := scene.Compared(); step != 100 {
		t.Fatalf("compared step %d, expected 100: both told it under plan 2", step)
	}
	if _, err := scene.digest(); err != nil {
		t.Fatal(err)
	}
}

func TestAReplicaThatDiffersIsNamed(t *testing.T) {
	scene := pair()
	tell(&scene, "n1", 2, 50, "a")
	tell(&scene, "n2", 2, 50, "b")
	tell(&scene, "spare", 1, 50, "c") // has no place
	if _, err := scene.digest(); err == nil || err.Error() != "n2 holds another layer 0 than the others" {
		t.Fatalf("got %v", err)
	}
}
