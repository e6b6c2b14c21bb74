//go:build !unix

package figures

import "time"

var began = time.Now()

// Spent is the time that has passed, where that of the processor is not to be had.
func Spent() time.Duration { return time.Since(began) }
