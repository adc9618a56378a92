// Handler is the command line: one file a verb; ui.go holds the rules of its output.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/handlerd/handler/handlerd/fault"
)

// version is set by the linker: -X main.version=…
var version = "devel"

func main() {
	// The first signal asks for an orderly end, the second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// What was Ctrl-C is told by the exit code.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	context.AfterFunc(ctx, func() {
		stop()
		signal.Stop(interrupted)
	})
	u := newUI(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	root := newRoot(u)
	strictCompletion(root)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errReported{1} // whoever ended it knows
	}
	code := u.exit(err)
	stop()
	select {
	case <-interrupted:
		if code == fault.Failed.ExitCode() {
			code = exitInterrupted
		}
	default:
	}
	os.Exit(code)
}
