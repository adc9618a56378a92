package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handlerd/handler/sandbox/proctree"
)

// How often somebody is killed.
const (
	killEvery    = 700 * time.Millisecond
	serviceEvery = 45 * time.Second // podman's service: every start and end waits for its next life
)

// killRandomly kills at random until it is told to stop, if this soak has kills.
func (s *soak) killRandomly(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !s.kills {
		return cancel
	}
	s.count = map[string]int{}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick, service := time.NewTicker(killEvery), time.NewTicker(serviceEvery)
		defer tick.Stop()
		defer service.Stop()
		for {
			select {
			case <-tick.C:
				s.killOne(ctx)
			case <-service.C:
				s.killService()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

var victims = []string{"agent", "guest", "monitor", "connection", "run", "stopped agent"}

// killOne kills somebody of a random run, or more.
func (s *soak) killOne(ctx context.Context) {
	s.mu.Lock()
	if len(s.live) == 0 {
		s.mu.Unlock()
		return
	}
	l, how := s.live[s.rand.IntN(len(s.live))], victims[s.rand.IntN(len(victims))]
	s.mu.Unlock()
	s.doomed(l.id, how)
	done := true
	switch how {
	case "connection":
		done = l.conn.Close() == nil
	case "run":
		done = s.daemon.api.Kill(ctx, l.id) == nil
	case "stopped agent": // it neither answers nor hears TERM
		done = signalIn(l.id, "agent", syscall.SIGSTOP) && s.daemon.api.Kill(ctx, l.id) == nil
	default:
		done = signalIn(l.id, how, syscall.SIGKILL)
	}
	if done {
		s.counted(how)
	}
}

func (s *soak) counted(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[how]++
}

// monitorOf tells podman's monitor of a run by its command line.
var monitorOf = regexp.MustCompile(`^\S*conmon\x00.*\x00-n\x00handler-[0-9a-f]{8}-([a-z0-9]+)\x00`)

// signalIn signals a process of a run, and says whether there was one.
func signalIn(run, who string, sig syscall.Signal) bool {
	all, err := proctree.Scan()
	if err != nil {
		return false
	}
	var monitor, guest, agent int
	for _, p := range all {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)) // fails for one that has ended
		if m := monitorOf.FindSubmatch(argv); m != nil && string(m[1]) == run {
			monitor = p.PID
		}
	}
	for _, p := range all {
		if p.Parent == monitor && monitor != 0 {
			guest = p.PID
		}
	}
	for _, p := range all {
		if p.Parent == guest && guest != 0 {
			agent = p.PID
		}
	}
	pid := map[string]int{"agent": agent, "guest": guest, "monitor": monitor}[who]
	return pid != 0 && syscall.Kill(pid, sig) == nil
}

// killService kills podman's service. Runs live on without it.
func (s *soak) killService() {
	all, err := proctree.Scan()
	if err != nil {
		return
	}
	for _, p := range all {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)) // fails for one that has ended
		if p.Parent == s.daemon.cmd.Process.Pid && bytes.Contains(argv, []byte("\x00system\x00service\x00")) {
			s.serviceKilled.Store(time.Now().UnixNano())
			if syscall.Kill(p.PID, syscall.SIGKILL) == nil {
				s.counted("podman's service")
			}
		}
	}
}

// report says what was done.
func (s *soak) report(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kills []string
	for how, n := range s.count {
		kills = append(kills, fmt.Sprintf("%s %d", how, n))
	}
	slices.Sort(kills)
	say("in %v: %d starts, %d turns, %d sessions loaded again, %d runs cut; killed: %s; %d starts refused while podman's service was down",
		took.Round(time.Second), s.starts.Load(), s.turns.Load(), s.loads.Load(), s.cut.Load(), strings.Join(kills, ", "), s.refused.Load())
}

// verdict says what is wrong at the end.
func (s *soak) verdict(before, after census) error {
	more := after.more(before)
	if n := after.layers - before.layers; n > s.count["podman's service"] {
		more = append(more, fmt.Sprintf("%d layers", n))
	}
	if len(more) > 0 {
		return fmt.Errorf("after everything has ended there is more than before:\n  %s", strings.Join(more[:min(len(more), 30)], "\n  "))
	}
	return nil
}
