// Handler is the command line: one file a verb; ui.go holds the rules of its output.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker: -X main.version=…
var version = "devel"

func main() {
	// The first signal asks for an orderly end, the second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	u := newUI(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	code := u.exit(newRoot(u).ExecuteContext(ctx))
	stop()
	os.Exit(code)
}
