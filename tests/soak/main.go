// Soak is many runs at once for long: the demo agent forty times on one daemon, thousands of turns, and at random
// moments somebody is killed: an agent, a guest, podman's monitor of a sandbox, a client's connection, a run by its
// owner, and now and then podman's service. hack/soak builds and starts it.
//
//	soak [--time 10m] [--runs 40] [--seed N]
//
// What it holds Handler to: every turn whose run was not killed is answered, once and in order (each prompt carries a
// number that the answer repeats); no run ends that nobody killed; what was answered is in the history when the
// session is loaded in a fresh run; and when all have ended there is no process, container, socket, mount, folder,
// goroutine or descriptor more than before, nor memory (docs/handlers/performance.md says within which bounds).
//
// Like bench it runs a daemon of its own, with configuration and state of its own and the person's images.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line's.
type options struct {
	root string // of the tree under test
	time time.Duration
	runs int
	seed uint64
}

func main() {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the tree under test, with its programs in bin/")
	flags.DurationVar(&o.time, "time", 10*time.Minute, "how long it lasts, its beginning and end not counted")
	flags.IntVar(&o.runs, "runs", 40, "runs at one time")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of what is random; a failure prints it")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil || flags.NArg() > 0 || o.runs < 1 || o.time <= 0:
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "soak: FAILED (--seed %d): %v\n", o.seed, err)
		os.Exit(1)
	}
}

// Bounds of what the daemon may have kept.
const (
	memoryFactor = 1.25    // of its own memory at the end to that after the warm-up
	memorySlack  = 8 << 20 // bytes more, which a garbage collector may keep at any moment
	settleLimit  = time.Minute
)

// run is the soak from its daemon's start to the verdict.
func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() == 0 {
		return errors.New("the soak is rootless, as Handler is; run: make soak (it goes on as an ordinary user)")
	}
	dir, err := os.MkdirTemp("", "hs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := startDaemon(ctx, o, dir)
	if err != nil {
		return err
	}
	defer func() {
		if d.alive() {
			err = errors.Join(err, d.stop())
		}
	}()
	s := &soak{options: o, daemon: d, rand: rand.New(rand.NewPCG(o.seed, 1)), killed: map[string]string{}}
	say("warm-up: %d runs at once, a few turns each", o.runs)
	if err := s.wave(ctx, 3*time.Second); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	before, err := d.settled(ctx, nil)
	if err != nil {
		return err
	}
	say("before: %v", before)
	began := time.Now()
	say("%v with %d runs at once, and kills", o.time, o.runs)
	s.kills = true
	soaked := s.wave(ctx, o.time)
	s.report(time.Since(began))
	after, err := d.settled(ctx, &before)
	say("after: %v", after)
	if err := errors.Join(soaked, err, s.verdict(before, after), ctx.Err()); err != nil {
		return fmt.Errorf("%w\nthe daemon's log:\n%s", err, tailOf(filepath.Join(dir, "handlerd.log")))
	}
	if err := d.stop(); err != nil {
		return err
	}
	if left, err := d.leftAtEnd(); err != nil || len(left) > 0 {
		return fmt.Errorf("the daemon has ended and this is left: %q (%v)", left, err)
	}
	say("passed: nothing is left and no message was lost")
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "soak: "+format+"\n", args...)
}

// tailOf is the end of a file, for an error.
func tailOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `msg="run ended"`) })
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
