// Command reknit-trainer runs a reference trainer.
package main

import (
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/service"
)

func main() { service.Main("trainer", trainer.Run) }
