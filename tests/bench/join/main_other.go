//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench-join: skipped: network namespaces need Linux") }
