package observer

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/tests/invariants"
)

// Verdict is how a training ended.
type Verdict struct {
	Digest, Oracle string // of the cluster's model, and of the same training undisturbed in one process
	Events, Plans  int
	Violations     []invariants.Violation
}

// Err says what is wrong; nil where nothing is.
func (v Verdict) Err() error {
	var faults []error
	if v.Digest != v.Oracle {
		faults = append(faults, fmt.Errorf("the model's digest is %s, the oracle's %s", v.Digest, v.Oracle))
	}
	for _, violation := range v.Violations {
		faults = append(faults, errors.New(violation.String()))
	}
	return errors.Join(faults...)
}

// Judge trains to the step that the scene compared last without any disturbance, compares the digests, and holds the
// log against the invariants. An error says that there is nothing to judge. Config is that of a trainer.
func (o *Observer) Judge(config trainer.Config, scene Scene) (Verdict, error) {
	digest, err := scene.digest()
	if err != nil {
		return Verdict{}, err
	}
	training, samples, err := config.Training()
	if err != nil {
		return Verdict{}, err
	}
	training.Steps = int(scene.Compared())
	undisturbed, _, err := oracle.Run(training, samples, nil)
	if err != nil {
		return Verdict{}, err
	}
	log, err := invariants.Read(bytes.NewReader(o.Log()))
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{digest, undisturbed, len(log.Events), len(log.Plans), log.Check()}, nil
}
