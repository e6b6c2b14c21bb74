// Command reknit-restorer runs the restorer.
package main

import (
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/shared/service"
)

func main() { service.Main("restorer", restorer.Run) }
