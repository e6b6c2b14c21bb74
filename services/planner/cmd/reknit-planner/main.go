// Command reknit-planner runs the planner.
package main

import (
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/shared/service"
)

func main() { service.Main("planner", planner.Run) }
