package local

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	sharedMemory = "/dev/shm" // a file system in memory, on Linux
	controlName  = "control"
	controlBytes = 4 << 10
	newSuffix    = ".new"
)

// files are what a trainer and its agent both map: the units of the state and the control page.
type files struct {
	dir     *folder
	units   [][]byte
	room    []bool         // by unit: its memory is taken
	news    map[int][]byte // by unit: another version of it
	dropped map[int][]byte // by unit: the memory of one that was given back; it stays mapped, for who still reads there
	control []byte
}

// makeFiles makes them in a new directory below parent. The room of all units is taken at once, or of none.
func makeFiles(parent string, units []int64, room bool) (*files, error) {
	dir, err := makeFolder(stateParent(parent), folderPrefix)
	if err != nil {
		return nil, err
	}
	f := newFiles(dir)
	if err = f.fits(units, room); err == nil {
		err = f.mapAll(units)
	}
	if err == nil {
		err = f.resize(controlName, controlBytes, reserve)
	}
	for i := 0; err == nil && room && i < len(units); i++ {
		err = f.take(i)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func newFiles(dir *folder) *files {
	return &files{dir: dir, news: map[int][]byte{}, dropped: map[int][]byte{}}
}

// mapAll maps the control page and the units.
func (f *files) mapAll(units []int64) (err error) {
	if f.control, err = f.mapped(controlName, controlBytes); err != nil {
		return err
	}
	for i, bytes := range units {
		unit, err := f.mapped(unitName(i), bytes)
		if err != nil {
			return err
		}
		f.units, f.room = append(f.units, unit), append(f.room, false)
	}
	return nil
}

// stateParent is where folders of files are: by default in shared memory.
func stateParent(parent string) string {
	if parent != "" {
		return parent
	}
	if _, err := os.Stat(sharedMemory); err != nil {
		return os.TempDir()
	}
	return sharedMemory
}

// fits fails where the units whose room is to be taken are more than there is.
func (f *files) fits(units []int64, room bool) error {
	var bytes int64
	for _, unit := range units {
		bytes += unit
	}
	if there := free(f.dir.path); room && bytes > there {
		return fmt.Errorf("state of %d bytes in %s, where %d are free: %w", bytes, filepath.Dir(f.dir.path), there, syscall.ENOSPC)
	}
	return nil
}

func unitName(unit int) string { return "unit-" + strconv.Itoa(unit) }

// mapped makes a file of so many bytes and maps it.
func (f *files) mapped(name string, bytes int64) ([]byte, error) {
	file, err := os.OpenFile(filepath.Join(f.dir.path, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(bytes); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: map %d bytes: %w", file.Name(), bytes, err)
	}
	return memory, nil
}

// take takes the room of a unit, whose file has none before. A write to a unit that has no room ends the process.
func (f *files) take(unit int) error {
	if f.room[unit] {
		return nil
	}
	err := f.resize(unitName(unit), len(f.units[unit]), reserve)
	f.room[unit] = err == nil
	return err
}

// release gives the room of a unit back, and its bytes with it.
func (f *files) release(unit int) {
	if !f.room[unit] {
		return
	}
	if err := f.resize(unitName(unit), len(f.units[unit]), release); err != nil {
		slog.Warn("a unit that is not needed keeps its memory", "unit", unit, "error", err)
		return
	}
	f.room[unit] = false
}

func (f *files) resize(name string, bytes int, change func(*os.File, int64) error) error {
	file, err := os.OpenFile(filepath.Join(f.dir.path, name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := change(file, int64(bytes)); err != nil {
		return fmt.Errorf("%s: reserve %d bytes: %w", file.Name(), bytes, err)
	}
	return nil
}

// another returns memory for another version of a unit.
func (f *files) another(unit int) (memory []byte, err error) {
	if f.news[unit] != nil {
		return f.news[unit], nil
	}
	name, bytes := unitName(unit)+newSuffix, len(f.units[unit])
	if memory = f.dropped[unit]; memory == nil {
		if memory, err = f.mapped(name, int64(bytes)); err != nil {
			return nil, err
		}
	}
	delete(f.dropped, unit)
	f.news[unit] = memory
	if err := f.resize(name, bytes, reserve); err != nil {
		f.drop(unit)
		return nil, err
	}
	return memory, nil
}

// drop gives back the memory for another version of a unit. It stays mapped: an exchange that was given up may still
// hash or fetch there, and needs no right bytes any more.
func (f *files) drop(unit int) {
	if f.news[unit] == nil {
		return
	}
	if err := f.resize(unitName(unit)+newSuffix, len(f.units[unit]), release); err != nil {
		slog.Warn("a unit that is not needed keeps its memory", "unit", unit, "error", err)
	}
	f.dropped[unit] = f.news[unit]
	delete(f.news, unit)
}

// close gives back everything, but leaves the files of a trainer that lives to it.
func (f *files) close() {
	if f.dir.inUse() {
		f.leave()
	} else {
		f.remove()
	}
}

// remove gives back everything. A trainer that still runs keeps what it has mapped.
func (f *files) remove() {
	f.dir.remove()
	f.unmapAll()
}

// leave leaves them to the next agent.
func (f *files) leave() {
	f.dir.leave()
	f.unmapAll()
}

func (f *files) unmapAll() {
	for _, memory := range f.units {
		if memory != nil { // else it is another trainer's
			unmap(memory)
		}
	}
	for _, versions := range []map[int][]byte{f.news, f.dropped} {
		for _, memory := range versions {
			unmap(memory)
		}
	}
	if f.control != nil {
		unmap(f.control)
	}
}

func unmap(memory []byte) {
	if err := syscall.Munmap(memory); err != nil {
		slog.Warn("memory is not unmapped", "error", err)
	}
}

// The words of the control page, by their place.
const (
	wordAbort = iota
	wordCompleted
	wordReady
	wordPhase
	wordWork
	wordStill
	wordOut
)

// word returns a word of the control page, which both sides write.
func (f *files) word(place int) uint64 { return atomic.LoadUint64(f.at(place)) }

func (f *files) setWord(place int, value uint64) { atomic.StoreUint64(f.at(place), value) }

func (f *files) at(place int) *uint64 { return (*uint64)(unsafe.Pointer(&f.control[8*place])) }
