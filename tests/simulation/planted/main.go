// Command planted applies each patch of this folder to the code, as it would be if an engineer had made that mistake,
// and runs simulated seeds until one of them sees it. A patch whose header names a test is judged by that test: of a Go package,
// or of services/agent/python. Files that Go does not compile are patched in a copy of the checkout, for what reads them has no overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	runs := flag.Int("runs", 1500, "how many `seeds` a mistake may escape")
	within := flag.Duration("within", 0, "stop after so `long`; zero is never. Each day begins elsewhere")
	flag.Parse()
	patches, err := filepath.Glob("tests/simulation/planted/*.patch")
	if err != nil || len(patches) == 0 {
		fmt.Fprintln(os.Stderr, "planted: no patch; run it at the top of the checkout", err)
		os.Exit(1)
	}
	if flag.NArg() > 0 {
		patches = slices.DeleteFunc(patches, func(patch string) bool { return !slices.Contains(flag.Args(), name(patch)) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	if *within > 0 {
		patches = rotated(patches)
		ctx, cancel = context.WithTimeout(ctx, *within)
	}
	defer cancel()
	if judge(ctx, patches, *runs) > 0 {
		os.Exit(1)
	}
}

// judge tries patches until the context ends, tells what came of each, and returns how many escaped.
func judge(ctx context.Context, patches []string, runs int) (escaped int) {
	tried := 0
	for _, patch := range patches {
		caught, how := try(ctx, patch, runs)
		if ctx.Err() != nil {
			break // what came of this one is not known
		}
		tried++
		if !caught {
			escaped++
		}
		fmt.Printf("%-60s %s\n", name(patch), how)
	}
	for _, patch := range patches[tried:] {
		fmt.Printf("%-60s skipped: no time\n", name(patch))
	}
	fmt.Printf("%d patches: %d caught, %d escaped, %d skipped\n",
		len(patches), tried-escaped, escaped, len(patches)-tried)
	return escaped
}

func name(patch string) string { return strings.TrimSuffix(filepath.Base(patch), ".patch") }

// daily is about how many patches there is time for in a minute: each day goes on where the day before ended.
const daily = 10

// rotated begins with other patches each day.
func rotated(patches []string) []string {
	if len(patches) == 0 {
		return nil
	}
	first := time.Now().YearDay() * daily % len(patches)
	return slices.Concat(patches[first:], patches[:first])
}

// try reports whether a mistake is seen, and by what.
func try(ctx context.Context, patch string, runs int) (caught bool, how string) {
	folder, err := os.MkdirTemp("", "planted")
	if err != nil {
		return false, err.Error()
	}
	defer func() { _ = os.RemoveAll(folder) }()
	text, err := os.ReadFile(patch)
	if err != nil {
		return false, err.Error()
	}
	overlay, err := apply(patch, string(text), folder)
	if err != nil {
		return false, "cannot be applied: " + err.Error()
	}
	test := seenBy.FindStringSubmatch(string(text))
	if test == nil {
		return simulated(ctx, overlay, folder, runs)
	}
	top := "."
	if notCompiled.MatchString(string(text)) {
		if err := complete(folder); err != nil {
			return false, "cannot be tried in a copy: " + err.Error()
		}
		top, overlay = folder, ""
	}
	return tested(ctx, top, overlay, strings.Fields(test[1]))
}

var (
	runsOf = regexp.MustCompile(`(?m)^\d+ runs`)
	seenBy = regexp.MustCompile(`(?m)^seen-by: (.+)$`)
	onFile = regexp.MustCompile(`(?m)^--- a/(.+)$`)

	notCompiled = regexp.MustCompile(`(?m)^--- a/.+\.(py|yml|js)$`)
	failed      = regexp.MustCompile(`(?m)^\s*--- FAIL|^panic:|^FAILED \(`)
	skipped     = regexp.MustCompile(`(?m)^\s*--- SKIP|\(skipped=`)
)

// apply makes the patched files beside the tree, and an overlay that puts them in the place of the files.
func apply(patch, text, folder string) (overlay string, err error) {
	top, err := os.Getwd()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, match := range onFile.FindAllStringSubmatch(text, -1) {
		file, copied := filepath.Join(top, match[1]), filepath.Join(folder, match[1])
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(copied), 0o755)
		}
		if err == nil {
			err = os.WriteFile(copied, data, 0o644)
		}
		if err != nil {
			return "", err
		}
		replace[file] = copied
	}
	git := exec.Command("git", "apply", "-C1", filepath.Join(top, patch))
	git.Dir = folder
	if said, err := git.CombinedOutput(); err != nil {
		return "", errors.New(strings.TrimSpace(string(said)))
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o644)
}

// complete copies what is not in a folder yet of the checkout.
func complete(folder string) error {
	listed, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return err
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		copied := filepath.Join(folder, file)
		info, err := os.Stat(file)
		if _, there := os.Stat(copied); there == nil || err != nil || !info.Mode().IsRegular() {
			continue // patched, deleted since, or a link to what is not ours
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(copied), 0o755)
		}
		if err == nil {
			err = os.WriteFile(copied, data, info.Mode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tested runs the test that is to fail, with an overlay, or in a copy of the checkout.
func tested(ctx context.Context, top, overlay string, arguments []string) (caught bool, how string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	began := time.Now()
	command := append([]string{"go", "test", "-v", "-count=1", "-vet=off"}, arguments...)
	if arguments[0] == "python" {
		python, err := exec.Command(".ci/python").Output()
		if err != nil {
			return false, "cannot be tested: " + err.Error()
		}
		command = append([]string{strings.TrimSpace(string(python)), "-W", "ignore::ResourceWarning", "-m", "unittest"}, arguments[1:]...)
		top = filepath.Join(top, "services", "agent", "python")
	}
	test := exec.CommandContext(ctx, command[0], command[1:]...)
	test.Dir = top
	if overlay != "" {
		test.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay) // some tests build commands themselves
	}
	test.WaitDelay = time.Second // what go started may outlive it, and holds its output open
	said, err := test.CombinedOutput()
	took := time.Since(began).Round(100 * time.Millisecond)
	switch {
	case err != nil && failed.Match(said):
		return true, fmt.Sprintf("caught by %s in %v", strings.Join(arguments, " "), took)
	case err != nil || skipped.Match(said):
		return false, "cannot be tested: " + strings.TrimSpace(string(said))
	}
	return false, fmt.Sprintf("ESCAPED: %s passes", strings.Join(arguments, " "))
}

// simulated runs seeds until one breaks an invariant.
func simulated(ctx context.Context, overlay, folder string, runs int) (caught bool, how string) {
	program := filepath.Join(folder, "simulation")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./tests/simulation")
	if said, err := build.CombinedOutput(); err != nil {
		return false, "cannot be built: " + string(said)
	}
	said, err := exec.CommandContext(ctx, program, "-first", "1", "-runs", fmt.Sprint(runs), "-stop").CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if err == nil {
		return false, fmt.Sprintf("ESCAPED %d seeds", runs)
	}
	how = "caught by " + lines[0]
	if count := runsOf.FindString(string(said)); count != "" {
		how += " (after " + count + ")"
	}
	return true, how
}
