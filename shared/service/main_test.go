package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestAVariableThatCannotBeReadIsNamedWithWhatWasExpected(t *testing.T) {
	err := Read(&struct {
		Common
		Patience time.Duration `env:"REKNIT_PATIENCE" envDefault:"5s" unit:"duration"`
		Bytes    int64         `env:"REKNIT_BYTES" envDefault:"0" unit:"a whole number of bytes" example:"1073741824"`
	}{}, map[string]string{"REKNIT_PATIENCE": "5", "REKNIT_LOG_LEVEL": "loud", "REKNIT_BYTES": "1GiB"})
	if err == nil {
		t.Fatal("read")
	}
	for _, said := range []string{
		`REKNIT_PATIENCE: expected duration, at least 0, such as 5s, got "5"`,
		`REKNIT_LOG_LEVEL: expected DEBUG, INFO, WARN or ERROR, such as INFO, got "loud"`,
		`REKNIT_BYTES: expected a whole number of bytes, 0 to 9007199254740991, such as 1073741824, got "1GiB"`,
	} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("got %v, expected %s", err, said)
		}
	}
}

func TestWhoIsToldToEndWhileItWaitsForNATSEndsWell(t *testing.T) {
	told, tell := context.WithCancel(t.Context())
	ended := func(with error) error {
		return runUntilTold(told, Common{}, func(context.Context, Common) error { return with })
	}
	waits := fmt.Errorf("connect: %w", context.Canceled)
	if err := ended(waits); err == nil {
		t.Error("nobody told it to end")
	}
	tell()
	if err := ended(waits); err != nil {
		t.Errorf("told to end: %v", err)
	}
	if err := ended(errors.New("the log is gone")); err == nil {
		t.Error("an error of its own is lost")
	}
}

func TestAVariableThatIsAlmostASettingIsNamed(t *testing.T) {
	environment := []string{
		"REKNIT_CLUSTER=x", "REKNIT_CLUSTRE=x", "REKNIT_NATSURL=x", "REKNIT_NATS_PORT=x", "KNIT_CLUSTER=x", "HOME=/root",
	}
	want := map[string]string{"REKNIT_CLUSTRE": "REKNIT_CLUSTER", "REKNIT_NATSURL": "REKNIT_NATS_URL"}
	if meant := Misspelt(Common{}, environment); !maps.Equal(meant, want) {
		t.Errorf("named are %q", meant)
	}
}
