package agentd

import (
	"fmt"
	"path/filepath"

	"github.com/reknit/reknit/events"
)

// standInJob is that of a script that is not changed: each node has one sample of a step. A script of another name is
// another job; one that was edited is not, for its checkpoint is its own affair.
func standInJob(script string) events.Job {
	return events.Job{
		Digest: events.Digest([]byte("a script that knows nothing of Reknit: " + script)), Kind: events.DataParallel,
		Layers:      []events.LayerProfile{{ParameterBytes: 1}},
		GlobalBatch: 1, MicroBatch: 1, BatchRule: &events.BatchRule{SamplesPerNode: 1, LearningRate: "linear"},
		Stages: events.Bounds{Min: 1, Max: 1},
	}
}

// scriptOf returns the name of the Python file that a command runs, wherever that lies; empty for a module (python -m) or
// a program, of which nothing is known.
func scriptOf(command []string) string {
	for _, argument := range command[1:] {
		switch {
		case argument == "-m" || argument == "-c":
			return ""
		case filepath.Ext(argument) == ".py":
			return filepath.Base(argument)
		}
	}
	return ""
}

// otherScript tells what another job is to who knows his script, and no digest.
func (s *standIn) otherScript(refused error) error {
	return fmt.Errorf("the cluster trains another script than %q, or one that joins by itself; start the same at all nodes, "+
		"or train this one in another cluster (reknit up --cluster OTHER --dir OTHER-data --port 0): %w", s.script, refused)
}
