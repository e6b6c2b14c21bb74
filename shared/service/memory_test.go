package service

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

// nodesOf returns a memory in which each of so many nodes is named so often, by a key that nobody can guess.
func nodesOf(t *testing.T, nodes, times int) page {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]string, nodes)
	for i := range keys {
		key := make([]byte, 56)
		for at := range key {
			key[at] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[random.IntN(32)]
		}
		keys[i] = string(key)
	}
	var named []string
	for range times {
		random.Shuffle(nodes, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		named = append(named, keys...)
	}
	machine, err := json.Marshal(named)
	if err != nil {
		t.Fatal(err)
	}
	return page{Instance: "i", Machine: machine}
}

func TestAMemoryOfAFullClusterTakesItsKeysOnce(t *testing.T) {
	const nodes, times, keyBytes = 4096, 20, 35
	_, data, err := new(memory).compress(nodesOf(t, nodes, times))
	if err != nil {
		t.Fatal(err)
	}
	if most := 8 * nodes * keyBytes; len(data) > most { // gzip leaves 20 times as much: each key whole
		t.Errorf("%d keys, each %d times, take %d bytes, expected at most %d", nodes, times, len(data), most)
	}
}

func TestAPageWithTheSameMachineTakesItsFrameFromTheOneBefore(t *testing.T) {
	m := &memory{page: page{Instance: "i", position: position{7, "e"}, Machine: []byte(`{"a":1}`)}}
	head, _, err := m.compress(m.page)
	if err != nil {
		t.Fatal(err)
	}
	next := m.page
	next.Apart = []apart{{9, `{"b":"<2>"}`}}
	m.head = head
	kept, stored, err := m.compress(next)
	if read, broken := decompress(stored); err != nil || broken != nil || !same(kept, head) || !reflect.DeepEqual(read, next) {
		t.Errorf("%+v was read as %+v, %v, %v", next, read, err, broken)
	}
	next.Machine = []byte(`{"a":2}`)
	if _, stored, err = m.compress(next); err != nil {
		t.Fatal(err)
	}
	if read, err := decompress(stored); err != nil || !reflect.DeepEqual(read, next) {
		t.Errorf("another machine's memory was read as %s, %v", read.Machine, err)
	}
}

func TestAMemoryOfABuildBeforeIsRead(t *testing.T) {
	before := page{Instance: "i", position: position{7, "e"}, Machine: []byte(`{"a":1}`), Said: 9}
	var stored bytes.Buffer
	writer := gzip.NewWriter(&stored)
	if err := json.NewEncoder(writer).Encode(before); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if read, err := decompress(stored.Bytes()); err != nil || !reflect.DeepEqual(read, before) {
		t.Errorf("%+v was read as %+v, %v", before, read, err)
	}
}
