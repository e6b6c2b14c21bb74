package service

import "runtime/debug"

// Release is the newest version, which the changelog describes first. A build of a later commit has it, too, until the next is made
// (.github/CONTRIBUTING.md, "A version").
const Release = "0.1.0"

// Version names the build of this program: the release and the commit, as in 0.1.0+b356a57c1f02, with .modified behind it where files
// differ from the commit. A build outside of a clone, or with -buildvcs=false, knows no commit.
func Version() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return Release
	}
	return named(info.Settings)
}

// named makes a version, in the form of Semantic Versioning, of what the linker wrote down.
func named(settings []debug.BuildSetting) string {
	const digits = 12 // of a commit, as many as Go's own versions have
	commit, modified := "", ""
	for _, setting := range settings {
		switch {
		case setting.Key == "vcs.revision" && setting.Value != "":
			commit = "+" + setting.Value[:min(digits, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = ".modified"
		}
	}
	if commit == "" {
		return Release
	}
	return Release + commit + modified
}
