package service

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/telemetry"
)

func TestAVariableThatCannotBeReadIsNamedWithWhatWasExpected(t *testing.T) {
	t.Setenv("REKNIT_PATIENCE", "5")
	t.Setenv("REKNIT_LOG_LEVEL", "loud")
	t.Setenv("REKNIT_BYTES", "1GiB")
	err := read(&struct {
		Common
		Patience time.Duration `env:"REKNIT_PATIENCE" envDefault:"5s" unit:"duration"`
		Bytes    int64         `env:"REKNIT_BYTES" envDefault:"0" unit:"a whole number of bytes" example:"1073741824"`
	}{})
	if err == nil {
		t.Fatal("read")
	}
	for _, said := range []string{
		`REKNIT_PATIENCE: expected duration, such as 5s, got "5"`,
		`REKNIT_LOG_LEVEL: expected DEBUG, INFO, WARN or ERROR, such as INFO, got "loud"`,
		`REKNIT_BYTES: expected a whole number of bytes, such as 1073741824, got "1GiB"`,
	} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("got %v, expected %s", err, said)
		}
	}
}

func TestAClusterThatCannotStandInASubjectIsRefusedAtOnce(t *testing.T) {
	_, err := Common{Cluster: "a b"}.Connect(t.Context(), "test")
	if err == nil || !strings.HasPrefix(err.Error(), "REKNIT_CLUSTER: expected") {
		t.Fatalf("got %v", err)
	}
}

func TestAVariableThatIsAlmostASettingIsNamedWhenTheServiceStarts(t *testing.T) {
	for _, name := range []string{"REKNIT_CLUSTER", "REKNIT_CLUSTRE", "REKNIT_NATSURL", "REKNIT_NATS_PORT", "KNIT_CLUSTER"} {
		t.Setenv(name, "x")
	}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	arguments, before, log := os.Args, os.Stderr, slog.Default()
	os.Args, os.Stderr = arguments[:1], stderr
	level := telemetry.Level.Level()
	telemetry.Level.Set(slog.LevelInfo)
	t.Cleanup(func() {
		os.Args, os.Stderr = arguments, before
		slog.SetDefault(log)
		telemetry.Level.Set(level)
	})
	if err := command(t.Context(), "test", func(context.Context, Common) error { return nil }); err != nil {
		t.Fatal(err)
	}
	logged, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	for name, named := range map[string]bool{
		`"REKNIT_CLUSTRE"`: true, `"REKNIT_NATSURL"`: true, `"REKNIT_CLUSTER"`: false, `"REKNIT_NATS_PORT"`: false, `"KNIT_CLUSTER"`: false,
	} {
		if strings.Contains(string(logged), name) != named {
			t.Errorf("%s is named: %v, expected %v, in\n%s", name, !named, named, logged)
		}
	}
}
