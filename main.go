// Command hoplog is a short-link platform whose database is a log: one binary with all roles and all tools.
// It only hands its arguments to gateway/app, the composition root, and must not import anything else.
package main

import (
	"os"

	"github.com/hoplog/hoplog/gateway/app"
)

func main() { os.Exit(app.Main(os.Args[1:])) }
