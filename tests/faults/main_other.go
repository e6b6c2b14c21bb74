//go:build !linux

package main

import "fmt"

func main() { fmt.Println("test-faults: skipped: network namespaces need Linux") }
