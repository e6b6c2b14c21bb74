// Command reknit-monitor runs the monitor.
package main

import (
	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/shared/service"
)

func main() { service.Main("monitor", monitor.Run) }
