//go:build !linux

package main

import "fmt"

func main() {
	fmt.Println("bench-retention: skipped: it kills processes through /proc, which Linux alone has")
}
