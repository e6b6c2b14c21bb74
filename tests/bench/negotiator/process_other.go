//go:build !linux

package main

import "errors"

func usedBy(int) (use, error) {
	return use{}, errors.New("what processes use is read from /proc, which only Linux has")
}
