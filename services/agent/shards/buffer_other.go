//go:build !unix

package shards

import "os"

// mapped returns memory of its own: nothing outlives the process.
func mapped(_ *os.File, bytes int) ([]byte, error) { return make([]byte, bytes), nil }

func unmapped([]byte) error { return nil }
