//go:build !linux

package main

import "fmt"

func main() {
	fmt.Println("soak: skipped: it strikes processes through /proc, which Linux alone has")
}
