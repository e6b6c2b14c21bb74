package service

import (
	"runtime/debug"
	"testing"
)

func TestABuildIsNamedByItsReleaseAndCommit(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "b356a57c1f0212345678901234567890abcdef01"}
	unchanged, changed := debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, settings := range map[string][]debug.BuildSetting{
		Release:                            nil,
		Release + "+b356a57c1f02":          {commit, unchanged},
		Release + "+b356a57c1f02.modified": {commit, changed},
	} {
		if got := named(settings); got != want {
			t.Errorf("%v is named %s, expected %s", settings, got, want)
		}
	}
}
