// Package negotiator decides whether and when a change of the cluster happens: it hears who joins, leaves and fails,
// gathers consents, has the change planned and restored, and commits one plan for each generation.
package negotiator

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/reknit/reknit/services/negotiator/machine"
	"github.com/reknit/reknit/shared/service"
)

// Config is the negotiator's environment.
type Config struct {
	service.Common
	StartNodes      int     `env:"REKNIT_START_NODES" envDefault:"1" unit:"nodes" is:"min=1" reason:"the first plan waits for so many of one job, that which most who wait train"`
	PreCopySteps    float64 `env:"REKNIT_PRECOPY_STEPS" envDefault:"1" unit:"steps" reason:"a move expected to take longer than so many steps is made while training goes on; 0: every move"`
	Admission       string  `env:"REKNIT_ADMISSION" unit:"path of a file" reason:"admission.json in the kit, and without a kit none: everybody may join. It is the signed policy of reknit provision admission, which lists who may, and how many institutions must approve of others. The next version that is signed there counts within a second"`
	HoursPerFailure float64 `env:"REKNIT_NODE_HOURS_PER_FAILURE" envDefault:"24" unit:"hours" is:"over=0" reason:"expected time to a node's failure before any was seen; spot instances live about a day"`
}

const (
	// answerTimeout is how long a member has to answer: an agent does within milliseconds of work or between two steps, and the rest is
	// slack for a busy host. Three steps of the plan in force are waited for at least.
	answerTimeout = 5 * time.Second
	// transferTime is how long a transfer has. One that takes longer, and three times as long as predicted, is planned anew over the
	// links that remain.
	transferTime = 5 * time.Minute
	// attemptsLimit is how many transfers may fail in a row: so many do not succeed by themselves, and the cluster holds.
	attemptsLimit = 5
)

// holdTime is after how long a cluster that can do nothing is tried again; each further wait is twice as long, up to
// half an hour.
const holdTime = 30 * time.Second

// tickEvery is how exactly deadlines are kept; the shortest is five seconds.
const tickEvery = 250 * time.Millisecond

// Run negotiates until ctx ends.
func Run(ctx context.Context, config Config) error {
	policy := config.policy()
	settings, err := config.settings(policy)
	if err != nil {
		return err
	}
	bus, err := config.Connect(ctx, "negotiator")
	if err != nil {
		return err
	}
	defer bus.Close()
	negotiator := machine.New(settings)
	return service.Run(ctx, service.Options{
		Name: "negotiator", Bus: bus, Machine: admitting{negotiator, policy}, TickEvery: tickEvery, Address: config.HTTPAddress, LogMade: negotiator.Began,
		Halted: negotiator.Halted,
	})
}

// Validate says what the tags cannot.
func (c Config) Validate() error {
	_, err := c.settings(c.policy())
	return err
}

func (c Config) policy() *policyFile {
	file := c.Admission
	if c.Kit != "" {
		file = cmp.Or(file, filepath.Join(c.Kit, AdmissionFile))
	}
	return &policyFile{file: file, kit: c.Kit, cluster: c.Cluster}
}

func (c Config) settings(policy *policyFile) (machine.Settings, error) {
	admission, err := policy.read()
	if err != nil {
		return machine.Settings{}, fmt.Errorf("REKNIT_ADMISSION: %w", err)
	}
	return machine.Settings{
		Admission: admission,
		Cluster:   c.Cluster, StartNodes: c.StartNodes, AnswerTimeout: answerTimeout, TransferTime: transferTime,
		FailuresPrior: 1 / (c.HoursPerFailure * 3600), AttemptsLimit: attemptsLimit,
		PreCopySteps: c.PreCopySteps, HoldTime: holdTime,
	}, nil
}
