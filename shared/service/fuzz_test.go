package service

import (
	"reflect"
	"testing"
)

func FuzzMemory(f *testing.F) {
	whole := page{Instance: "i", position: position{7, "e"}, Machine: []byte(`{"a":1}`), Said: 9, Heard: 12,
		fears: fears{Unopened: 2, Deaths: 1}, Apart: []apart{{8, `{"node":"n1"}`}}}
	for _, p := range []page{{}, whole} {
		_, data, err := new(memory).compress(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decompress(data)
		if err != nil {
			return
		}
		_, again, err := new(memory).compress(p)
		if err != nil {
			t.Fatalf("%+v was read, and cannot be written: %v", p, err)
		}
		if back, err := decompress(again); err != nil || !reflect.DeepEqual(back, p) {
			t.Errorf("%+v came back as %+v, %v", p, back, err)
		}
	})
}
