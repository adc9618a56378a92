package fake

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
)

const (
	pollTime       = 5 * time.Millisecond // between looks at the process table
	ticksPerSecond = 100                  // of /proc, on every Linux
)

func (d *Driver) box(id string) *box {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id]
}

// Wait implements sandbox.Driver.
func (d *Driver) Wait(ctx context.Context, id string) (sandbox.Exit, error) {
	b := d.box(id)
	if b == nil {
		return sandbox.Exit{}, d.fault(StepWait, "")
	}
	if err := d.fault(StepWait, b.name); err != nil {
		return sandbox.Exit{}, err
	}
	select {
	case <-b.done:
		return b.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Stop implements sandbox.Driver.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	b := d.box(id)
	if b == nil {
		return d.fault(StepStop, "")
	}
	if err := d.fault(StepStop, b.name); err != nil {
		return err
	}
	return b.stop(ctx, grace)
}

func (b *box) stop(ctx context.Context, grace time.Duration) error {
	if !b.running() {
		return nil
	}
	if err := b.signal(unix.SIGTERM, b.guest); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-b.done:
		return nil
	case <-timer.C:
	case <-ctx.Done(): // the caller is out of time, not the processes out of our hands
	}
	if err := b.kill(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-b.done
	return ctx.Err()
}

// tree returns the sandbox's live processes: what descends from the first one and what carries its mark.
func (b *box) tree() ([]proctree.Proc, error) {
	procs, err := proctree.Scan()
	if err != nil {
		return nil, err
	}
	below := map[int]bool{b.cmd.Process.Pid: true}
	for _, p := range proctree.Below(procs, b.cmd.Process.Pid) {
		below[p.PID] = true
	}
	var tree []proctree.Proc
	for _, p := range procs {
		if !p.Dead() && p.PID != os.Getpid() && (b.marked(p.PID) || below[p.PID] && !b.reaped.Load()) {
			tree = append(tree, p)
		}
	}
	return tree, nil
}

func (b *box) marked(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(env, []byte(markName+"="+b.id+"\x00"))
}

// signal sends sig to the whole tree, or to the first process alone.
func (b *box) signal(sig unix.Signal, first bool) error {
	procs, err := b.tree()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range procs {
		if !first || p.PID == b.cmd.Process.Pid {
			errs = append(errs, proctree.Signal(p, sig))
		}
	}
	return errors.Join(errs...)
}

// kill kills the tree until none of it is left.
func (b *box) kill(ctx context.Context) error {
	for {
		procs, err := b.tree()
		if err != nil || len(procs) == 0 {
			return err
		}
		for _, p := range procs {
			if err := proctree.Signal(p, unix.SIGKILL); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pollTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Remove implements sandbox.Driver.
func (d *Driver) Remove(ctx context.Context, id string) error {
	b := d.box(id)
	if b == nil {
		return d.fault(StepRemove, "")
	}
	if err := d.fault(StepRemove, b.name); err != nil {
		return err
	}
	return d.remove(ctx, id)
}

func (d *Driver) remove(ctx context.Context, id string) error {
	b := d.box(id)
	if b == nil {
		return nil
	}
	if err := b.kill(ctx); err != nil {
		return err
	}
	<-b.done
	if err := removeAll(b.dir); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxes[id] == b { // else another Remove was here
		delete(d.boxes, id)
		delete(d.names, b.name)
	}
	return nil
}

// Stats implements sandbox.Driver. A sandbox that has ended or is gone is an error.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) {
	b := d.box(id)
	if b == nil || !b.running() {
		return sandbox.Stats{}, &sandbox.EngineError{Op: "stats", Err: errors.New("the sandbox is not running")}
	}
	if err := d.fault(StepStats, b.name); err != nil {
		return sandbox.Stats{}, err
	}
	procs, err := b.tree()
	if err != nil {
		return sandbox.Stats{}, err
	}
	var s sandbox.Stats
	for _, p := range procs {
		s.Processes++
		s.MemoryBytes += p.Pages * int64(os.Getpagesize())
		s.CPUTime += time.Duration(p.Ticks) * time.Second / ticksPerSecond
	}
	if d.measure != nil {
		s = d.measure(b.name, s)
	}
	return s, nil
}

// Glance implements sandbox.Driver: it is Stats.
func (d *Driver) Glance(ctx context.Context, id string) (sandbox.Stats, error) {
	return d.Stats(ctx, id)
}
