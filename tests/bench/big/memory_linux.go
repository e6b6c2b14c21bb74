package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reknit/reknit/tests/torch"
)

// sampleEvery is short beside the time in which a unit moves.
const sampleEvery = 100 * time.Millisecond

// footprint is what a worker's agent takes.
type footprint struct {
	process int64 // bytes of the agent's own memory: neither the files that it maps with its trainer nor the page cache
	shared  int64 // of its folders in shared memory: the state, and units that are on their way
	given   int64 // of its folders elsewhere: what others fetch
}

func (f footprint) most(other footprint) footprint {
	if other.process+other.shared > f.process+f.shared {
		f.process, f.shared = other.process, other.shared
	}
	f.given = max(f.given, other.given)
	return f
}

// scale has the most that agents took. It may be used by several goroutines.
type scale struct {
	mutex sync.Mutex
	peaks map[string]footprint // by worker, since the last reset
}

// watch samples the agents of a job until ctx ends.
func (s *scale) watch(ctx context.Context, job *torch.Job) {
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	for {
		for _, worker := range job.Running() {
			now := weigh(job.Worker(worker).Parent())
			s.mutex.Lock()
			s.peaks[worker] = s.peaks[worker].most(now)
			s.mutex.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// reset begins a new scene.
func (s *scale) reset() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.peaks = map[string]footprint{}
}

func (s *scale) peak(worker string) footprint {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.peaks[worker]
}

// weigh returns what an agent takes now; zeros once it has ended.
func weigh(pid int) footprint {
	f := footprint{process: memoryOf(pid)}
	for _, folder := range foldersOf(pid) {
		switch {
		case !strings.HasPrefix(folder, "/dev/shm/"):
			f.given += bytesIn(folder)
		case hasMapped(pid, folder): // else it is one that a dead agent left, and being removed
			f.shared += bytesIn(folder)
		}
	}
	return f
}

// hasMapped reports whether a process has mapped files of a folder.
func hasMapped(pid int, folder string) bool {
	mapped, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)) // it may have ended
	return bytes.Contains(mapped, []byte(folder+"/"))
}

// memoryOf is the resident memory of a process, without that of a file system in memory.
func memoryOf(pid int) (resident int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		var kibibytes int64
		for _, name := range []string{"RssAnon:", "RssFile:"} {
			if strings.HasPrefix(lines.Text(), name) {
				_, _ = fmt.Sscanf(lines.Text()[len(name):], "%d kB", &kibibytes) // else 0
				resident += kibibytes << 10
			}
		}
	}
	return resident
}

// foldersOf returns the folders of an agent's trainers, on which it holds locks.
func foldersOf(pid int) (folders []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is sound
	for _, file := range files {
		target, err := os.Readlink(file)
		if err == nil && strings.HasPrefix(filepath.Base(target), "reknit-state-") {
			folders = append(folders, target)
		}
	}
	return folders
}

// bytesIn is the room that files take. Those that go meanwhile do not count.
func bytesIn(folder string) (total int64) {
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				total += 512 * stat.Blocks
			}
		}
		return nil
	})
	return total
}
