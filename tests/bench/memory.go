package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/handlerd/handler/sandbox/proctree"
)

// idleRuns is how many runs the memory of one is found from.
const idleRuns = 8

// settleTime is how long memory may take to come to rest after something was done.
const settleTime = 10 * time.Second

// A memory is one process's: what is its own alone, and that with its share of what it maps together with others.
type memory struct{ private, pss int64 }

func (m memory) plus(o memory) memory { return memory{m.private + o.private, m.pss + o.pss} }

// A census is the memory of everything at one moment.
type census struct {
	daemon   memory
	service  memory // podman's, with its pause process
	monitors memory // podman's conmon, one a run
	sandbox  int64  // all runs' own, as handlerd counts it
}

// measureMemory finds out what the daemon and a run cost at rest. Podman's service is counted apart.
func measureMemory(ctx context.Context, b *bench) (err error) {
	if err := b.stopDaemon(); err != nil { // what it was used for has left its traces: a fresh one
		return err
	}
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	var lives []*live
	defer func() {
		for _, l := range lives {
			err = errors.Join(err, l.end(context.WithoutCancel(ctx), d))
		}
	}()
	begin := func(n int) error {
		for range n {
			l, err := d.run(ctx, plainAgent)
			if err != nil {
				return err
			}
			lives = append(lives, l)
			if err := l.session(d.scope); err != nil {
				return err
			}
		}
		return rest(ctx, settleTime)
	}
	// One run that has ended: a daemon that has served is the usual one.
	if err := begin(1); err != nil {
		return err
	}
	if err := lives[0].end(ctx, d); err != nil {
		return err
	}
	lives = nil
	var at [3]census
	for i, more := range []int{0, 1, idleRuns} {
		if err := begin(more); err != nil {
			return err
		}
		if at[i], err = d.census(ctx); err != nil {
			return err
		}
	}
	b.report.addMemory(at)
	return nil
}

func (r *report) addMemory(at [3]census) {
	mb := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	each := func(of func(census) int64) float64 { return mb(of(at[2])-of(at[1])) / idleRuns }
	r.add(row{
		Group: "memory", What: "daemon at rest, its own memory", Figure: mb(at[0].daemon.private), Unit: "MB", Target: atMost(40),
		Numbers: []number{{"with its share of mapped files", mb(at[0].daemon.pss), "MB"}, {"podman's service apart", mb(at[0].service.private), "MB"}},
	})
	r.add(row{
		Group: "memory", What: "daemon, for each further run at rest", Figure: each(func(c census) int64 { return c.daemon.private }), Unit: "MB", Target: atMost(5),
		Numbers: []number{
			{"with 1 run", mb(at[1].daemon.private), "MB"}, {fmt.Sprintf("with %d", 1+idleRuns), mb(at[2].daemon.private), "MB"},
			{"podman's service, a run", each(func(c census) int64 { return c.service.private }), "MB"},
			{"podman's monitor, a run", each(func(c census) int64 { return c.monitors.private }), "MB"},
		},
	})
	r.add(row{
		Group: "memory", What: "sandbox of the demo agent at rest, without browser", Figure: each(func(c census) int64 { return c.sandbox }), Unit: "MB",
		Numbers: []number{{"of them", float64(1 + idleRuns), ""}},
	})
}

func (d *daemon) census(ctx context.Context) (census, error) {
	var c census
	pid := d.cmd.Process.Pid
	var err error
	if c.daemon, err = readMemory(pid); err != nil {
		return c, err
	}
	procs, err := proctree.Scan()
	if err != nil {
		return c, err
	}
	for _, p := range proctree.Below(procs, pid) {
		m, err := readMemory(p.PID)
		if err != nil {
			continue // it has ended
		}
		c.service = c.service.plus(m)
	}
	runs, err := d.api.Runs(ctx)
	if err != nil {
		return c, err
	}
	for _, run := range runs {
		c.sandbox += run.MemoryBytes
	}
	for _, p := range procs {
		argv := readString(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		program, _, _ := strings.Cut(argv, "\x00")
		if !strings.HasSuffix(program, "conmon") || !strings.Contains(argv, d.podman[:len(d.podman)-len("p.sock")]) {
			continue
		}
		if m, err := readMemory(p.PID); err == nil {
			c.monitors = c.monitors.plus(m)
		}
	}
	return c, nil
}

// readMemory reads what a process has.
func readMemory(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for name, into := range map[string]*int64{"Private_Clean:": &m.private, "Private_Dirty:": &m.private, "Pss:": &m.pss} {
		n, err := kilobytes(string(text), name)
		if err != nil {
			return memory{}, err
		}
		*into += n
	}
	return m, nil
}

// kilobytes reads a value of /proc, such as "Pss: 12 kB", in bytes.
func kilobytes(text, name string) (int64, error) {
	value, ok := strings.CutSuffix(field(text, name), " kB")
	n, err := strconv.ParseInt(value, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%s is not said in kB: %q", name, value)
	}
	return n << 10, nil
}
