//go:build !linux

package main

import "fmt"

func main() {
	fmt.Println("bench-big: skipped: it looks at processes through /proc, which Linux alone has")
}
