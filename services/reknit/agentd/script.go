package agentd

import (
	"fmt"
	"os"

	"github.com/reknit/reknit/events"
)

// standInJob is that of a script that is not changed: each node has one sample of a step. Another script is another job.
func standInJob(script []byte) events.Job {
	return events.Job{
		Digest: events.Digest(append([]byte("a script that knows nothing of Reknit"), script...)), Kind: events.DataParallel,
		Layers:      []events.LayerProfile{{ParameterBytes: 1}},
		GlobalBatch: 1, MicroBatch: 1, BatchRule: &events.BatchRule{SamplesPerNode: 1, LearningRate: "linear"},
		Stages: events.Bounds{Min: 1, Max: 1},
	}
}

// mostScript is the longest script: what is longer is data, which nodes need not have alike.
const mostScript = 16 << 20

// scriptOf returns the script that a command runs: the first of its arguments that names a file. Of a module (python -m) or
// a program there is none, and nothing is known.
func scriptOf(command []string) (path string, content []byte, err error) {
	for _, argument := range command[1:] {
		about, err := os.Stat(argument)
		if err != nil || !about.Mode().IsRegular() {
			continue
		}
		if about.Size() > mostScript {
			return "", nil, nil
		}
		content, err = os.ReadFile(argument)
		return argument, content, err
	}
	return "", nil, nil
}

// otherScript tells what another job is to who knows his script, and no digest.
func (s *standIn) otherScript(refused error) error {
	if s.script == "" {
		return fmt.Errorf("the cluster trains another script, or one that joins by itself; start the same at all nodes, "+
			"or give this one another REKNIT_CLUSTER: %w", refused)
	}
	return fmt.Errorf("%s differs from the script that the cluster trains; start the same at all nodes, "+
		"or give one that was changed another REKNIT_CLUSTER: %w", s.script, refused)
}
