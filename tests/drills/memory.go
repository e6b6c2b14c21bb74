package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/services/trainer/model"
)

// spoiledSteps is how many steps from the first the vector that is spoiled serves no sample.
const spoiledSteps = 2000

// unread returns the embedding of a character that no sample of these steps holds: it stays as it was made, and no
// gradient depends on it. So the replica that has it spoiled does not lead the others astray.
func unread(config trainer.Config) ([]float32, error) {
	training, samples, err := config.Training()
	if err != nil {
		return nil, err
	}
	read := make([]bool, training.Shape.Vocabulary)
	for sample := range spoiledSteps * training.GlobalBatch {
		characters, _, err := samples.Sample(sample)
		if err != nil {
			return nil, err
		}
		for _, character := range characters {
			read[character] = true
		}
	}
	character := slices.Index(read, false)
	if character < 0 {
		return nil, fmt.Errorf("expected a character that the first %d steps do not read", spoiledSteps)
	}
	embedding, err := model.NewLayer(training.Shape, 0, training.Seed)
	if err != nil {
		return nil, err
	}
	return embedding.Parameters[character*training.Shape.Width:][:training.Shape.Width], nil
}

// spoil changes the first float of a vector in a process's memory, wherever it holds the vector: in the version of the
// layer that it trains, and in the one before.
func spoil(pid int, vector []float32) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // it ends with the cluster otherwise
	var pattern bytes.Buffer
	if err := binary.Write(&pattern, binary.NativeEndian, vector); err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	places, err := find(pid, memory, pattern.Bytes())
	if err != nil {
		return err
	}
	for _, place := range places {
		var spoiled [4]byte
		binary.NativeEndian.PutUint32(spoiled[:], 0x3f000000) // 0.5
		if _, err := memory.WriteAt(spoiled[:], place); err != nil {
			return err
		}
	}
	return nil
}

// find returns where a process's memory holds a pattern.
func find(pid int, memory io.ReaderAt, pattern []byte) (places []int64, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var first, end int64
		var rights string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &first, &end, &rights)
		if err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		region := make([]byte, end-first)
		if _, err := memory.ReadAt(region, first); err != nil {
			continue // not backed
		}
		for at := 0; ; at++ {
			next := bytes.Index(region[at:], pattern)
			if next < 0 {
				break
			}
			at += next
			places = append(places, first+int64(at))
		}
	}
	if len(places) == 0 {
		return nil, errors.New("expected the vector in the process's memory")
	}
	return places, nil
}
