//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench-links: skipped: network namespaces need Linux") }
