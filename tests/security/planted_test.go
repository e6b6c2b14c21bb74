package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// planted is how many steps further a snapshot claims to be that nobody wrote.
const planted = 100_000

// TestWhoCanWriteToTheBucketOfSnapshotsReplacesNoModel has all trainers of an installation stop with a snapshot in a bucket, and somebody
// put another beside it that is newer: bytes of his own, under the nodes' names and the plan that was in force. He puts a manifest of a
// gigabyte there, too. All start again, and go on from what they wrote themselves.
func TestWhoCanWriteToTheBucketOfSnapshotsReplacesNoModel(t *testing.T) {
	p := open(t)
	p.services()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := p.connect("negotiator").Provision(ctx); err != nil {
		t.Fatal(err)
	}
	file, bucket := filepath.Join(t.TempDir(), "text"), t.TempDir()
	if err := os.WriteFile(file, []byte(prose), 0o600); err != nil {
		t.Fatal(err)
	}
	heard := make(chan events.Event, 1024)
	for stream, kinds := range map[*events.Stream][]events.Kind{
		&events.EventStream: {events.SnapshotCompleted, events.TrainingStopped}, &events.PlanStream: {events.PlanCommitted},
	} {
		var subjects []string
		for _, kind := range kinds {
			subjects = append(subjects, events.Event{Kind: kind, Cluster: cluster, Subject: "*"}.SubjectName())
		}
		hear := func(event events.Event) { heard <- event }
		if _, err := p.connect(map[bool]string{true: "user", false: "negotiator"}[stream == &events.EventStream]).
			Follow(ctx, *stream, subjects, bus.All, hear); err != nil {
			t.Fatal(err)
		}
	}
	settings := map[string]string{
		"REKNIT_SNAPSHOT_BUCKET": "file://" + bucket + "?no_tmp_dir=true&metadata=skip", "REKNIT_SNAPSHOT_REMOTE_EVERY": "20",
	}
	ended := make(chan error, 4)
	train := func() {
		for _, name := range []string{"n1", "n2"} {
			p.train(ctx, name, file, settings, ended)
		}
	}
	await := func(kind events.Kind) events.Event {
		t.Helper()
		for {
			select {
			case event := <-heard:
				if event.Kind == kind {
					return event
				}
			case <-ctx.Done():
				t.Fatalf("no %s", kind)
			}
		}
	}
	train()
	await(events.PlanCommitted)
	await(events.SnapshotCompleted)
	p.stopJob(ctx)
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("a trainer that is stopped ended: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("a trainer that is stopped goes on")
		}
	}
	await(events.TrainingStopped)
	time.Sleep(time.Second) // until all is heard that was said before
	for len(heard) > 0 {
		<-heard
	}
	plant(t, bucket)
	peak := watchMemory(ctx)
	train()
	plan, err := events.Open[events.Plan](await(events.PlanCommitted))
	if err != nil {
		t.Fatal(err)
	}
	if plan.ResumeStep == 0 || plan.ResumeStep >= planted {
		t.Errorf("training goes on from step %d, expected one that the nodes wrote", plan.ResumeStep)
	}
	if most := peak(); most > 256<<20 {
		t.Errorf("two trainers and four services took %d MiB more for what lies in the bucket", most>>20)
	}
}

// stopJob has a user ask that all stop, as reknit stop does: of two that ask to leave, one after the other, each is refused.
func (p *place) stopJob(ctx context.Context) {
	p.Helper()
	request := events.Speaker{Source: "/user", Cluster: cluster}.First(time.Now(), "stop", events.StopRequested, cluster, &events.StopRequest{})
	if _, err := p.connect("user").Publish(ctx, request); err != nil {
		p.Fatal(err)
	}
}

// plant copies each part in a bucket to a newer snapshot, with other bytes, and puts a sparse manifest of a gigabyte beside it.
func plant(t *testing.T, bucket string) {
	t.Helper()
	var manifests []string
	err := filepath.WalkDir(bucket, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "manifest.json" {
			manifests = append(manifests, path)
		}
		return err
	})
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no snapshot is in the bucket: %v", err)
	}
	for _, path := range manifests {
		var written map[string]any
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &written)
		}
		if err != nil {
			t.Fatal(err)
		}
		node := filepath.Dir(path)
		snapshot := filepath.Base(filepath.Dir(node))
		step := written["step"].(float64)
		for _, further := range []float64{planted, 2 * planted} {
			newer := fmt.Sprintf("%020d-%s", int(step+further), snapshot[21:])
			to := filepath.Join(filepath.Dir(filepath.Dir(node)), newer, filepath.Base(node))
			written["step"] = step + further
			plantPart(t, node, to, written)
			if further > planted {
				if err := os.Truncate(filepath.Join(to, "manifest.json"), 1<<30); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func plantPart(t *testing.T, from, to string, written map[string]any) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, entry := range written["units"].([]any) {
		unit := entry.(map[string]any)
		name := fmt.Sprint("unit-", unit["unit"])
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.ReplaceAll(data, data[len(data)-8:], bytes.Repeat([]byte{1}, 8))
		unit["digest"] = events.Digest(data)
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(written)
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "manifest.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
