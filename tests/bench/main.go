// Bench measures what Handler costs against what the same work costs without it: the start of a sandbox against
// podman's bare API, the relay and the proxy against a bare copy over the same hops, the daemon's memory, and the demo
// on a machine that is set up. hack/bench builds and starts it; docs/handlers/performance.md says what the numbers mean.
//
//	bench [--json] [--write] [--quick] [--only GROUPS]
//
// What is compared is measured in turns, so that a neighbour of the machine disturbs both sides alike, and the
// ratios of such pairs are what counts. Progress goes to standard error, the results to standard output.
//
// Where the daemon under test is needed, bench runs its own: with configuration and state of its own, and the person's
// podman storage, since images take minutes to build. A daemon that runs has to end for that; one with live runs is
// left alone, and bench gives up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are the command line's.
type options struct {
	root  string // of the tree under test
	json  bool
	write bool
	quick bool
	only  string
}

func main() {
	if name, args, ok := asRole(os.Args); ok {
		os.Exit(runRole(name, args))
	}
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the tree under test, with its programs in bin/")
	flags.BoolVar(&o.json, "json", false, "print JSON and no table")
	flags.BoolVar(&o.write, "write", false, "write the results into docs/handlers/performance.md")
	flags.BoolVar(&o.quick, "quick", false, "few repetitions: for a look, not for a verdict")
	flags.StringVar(&o.only, "only", "", "comma-separated groups: "+strings.Join(groupNames(), ", "))
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil || flags.NArg() > 0:
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A group is what is measured together.
type group struct {
	name string
	run  func(context.Context, *bench) error
}

// groups are in the order in which they are measured: first what needs no daemon, last what needs the machine as the
// person has it.
func groups() []group {
	return []group{
		{"relay", measureRelay},
		{"egress", measureEgress},
		{"audit", measureAudit},
		{"start", measureStart},
		{"memory", measureMemory},
		{"life", measureLife},
		{"stream", measureStream},
		{"browser", measureBrowser},
		{"gateway", measureGateway},
		{"demo", measureDemo},
	}
}

func groupNames() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// A bench is one run of all measurements.
type bench struct {
	options
	bin    string // the programs under test
	dir    string // for everything that is made on the way; removed at the end
	report report
	daemon *daemon // nil while none of ours runs
}

func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() == 0 {
		return errors.New("the benchmark is rootless, as Handler is; run: make bench (it goes on as an ordinary user)")
	}
	wanted := groupNames()
	if o.only != "" {
		wanted = strings.Split(o.only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(groupNames(), name) {
			return fmt.Errorf("there is no group %q; there are: %s", name, strings.Join(groupNames(), ", "))
		}
	}
	if o.write && (o.quick || o.only != "") {
		return errors.New("--write wants the whole and nothing shortened: leave out --quick and --only")
	}
	b := &bench{options: o}
	if b.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	b.bin = filepath.Join(b.root, "bin")
	if _, err := os.Stat(filepath.Join(b.bin, "handlerd")); err != nil {
		return errors.New("bin/handlerd is not built; run: make build")
	}
	if b.dir, err = os.MkdirTemp("", "hb"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stopDaemon(), os.RemoveAll(b.dir)) }()
	b.report.Machine = describe()
	for _, g := range groups() {
		if !slices.Contains(wanted, g.name) {
			continue
		}
		b.say("%s (load %s)", g.name, load())
		if err := g.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	b.report.Machine.LoadAfter = load()
	return b.publish()
}

// publish prints the results and, where asked to, writes them into the manual.
func (b *bench) publish() error {
	if b.write {
		if err := writePage(filepath.Join(b.root, "docs/handlers/performance.md"), b.report); err != nil {
			return err
		}
	}
	if b.json {
		return b.report.writeJSON(os.Stdout)
	}
	_, err := fmt.Fprint(os.Stdout, b.report.text())
	return err
}

// say tells of the progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// times gives how often something is repeated: n, or few with --quick.
func (b *bench) times(n, few int) int {
	if b.quick {
		return few
	}
	return n
}
