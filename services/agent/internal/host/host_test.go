package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProcessorsAreCountedInTheKernelsLists(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8,10-11": 7, "": 0, "a-b": 0, "3-1": 0, "0-99999999": 0} {
		if got := countOf(list); got != want {
			t.Errorf("%q names %d processors: expected %d", list, got, want)
		}
	}
}

func TestTheMemoryIsThatOfTheNarrowestGroup(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:        1 kB\n"
	for what, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known":           {nil, 0},
		"no group":                   {map[string]string{"proc/meminfo": meminfo}, 16384 * 1024},
		"a group without a limit":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 16384 * 1024},
		"a group with a limit":       {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n"}, 4096},
		"a narrower group around it": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n", "sys/fs/cgroup/a/memory.max": "2048\n"}, 2048},
		"a container":                {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n"}, 8192},
		"the first version":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "512\n"}, 512},
	} {
		root := t.TempDir()
		for name, text := range test.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryIn(root); got != test.want {
			t.Errorf("%s: %d bytes, expected %d", what, got, test.want)
		}
	}
}
