// Handlerd is the daemon's main: parse, wire, run. It knows the drivers by name; the engine (handlerd/…) does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/fault"
)

// version is set by the linker: -X main.version=…
var version = "devel"

// options are the command line's.
type options struct {
	idleExit time.Duration
	readyFD  int
	logFile  string
}

func main() {
	var o options
	flags := flag.NewFlagSet("handlerd", flag.ContinueOnError)
	flags.DurationVar(&o.idleExit, "idle-exit", 0, "end after this long without a run or a request; 0 for never")
	flags.IntVar(&o.readyFD, "ready-fd", 0, "write \"ready\" to this descriptor, or what went wrong, and close it")
	flags.StringVar(&o.logFile, "log-file", "", "log there, in bounds, and not to standard error")
	show := flags.Bool("version", false, "print the version")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: handlerd [flags]\n\nThe daemon behind the handler command, which starts it when it is needed.\n\n")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil || flags.NArg() > 0:
		os.Exit(fault.Usage.ExitCode())
	case *show:
		fmt.Println("handlerd", version)
		return
	}
	out, err := openLog(o.logFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "handlerd:", err)
		os.Exit(fault.Failed.ExitCode())
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	// The first signal asks for an orderly end, the second one ends at once. Cancelling is no error: it is how the
	// daemon ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	ready := newReadiness(o.readyFD)
	if err := run(ctx, o, log, ready); err != nil {
		ready.failed(err)
		log.Error("handlerd ended", "error", err)
		os.Exit(fault.Of(err).Kind.ExitCode())
	}
}

// run is the daemon from its first lock to its last byte.
func run(ctx context.Context, o options, log *slog.Logger, ready *readiness) error {
	d, err := dirs.Find(os.Getenv)
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", "handlerd")
	}
	held, err := takeLocks(ctx, d, os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()))
	if errors.Is(err, errLocked) {
		ready.ok() // somebody else's daemon is the one that was wanted
		return nil
	}
	if err != nil {
		return err
	}
	defer held.close()
	daemon, err := wire(d, log)
	if err != nil {
		return err
	}
	defer daemon.close()
	l, startedBy, err := listen(d)
	if err != nil {
		return err
	}
	return daemon.serve(ctx, l, startedBy, o.idleExit, ready)
}
