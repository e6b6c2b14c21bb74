// Command reknit-negotiator runs the negotiator.
package main

import (
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/shared/service"
)

func main() { service.Main("negotiator", negotiator.Run) }
