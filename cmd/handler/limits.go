package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
)

// limitFlags are the limits that agent add and edit save, and that run and acp give one run.
type limitFlags struct {
	memory, tmp, home, shm, state, lifetime, idle string
	cpus                                          cpus
	processes                                     int64
}

func (f *limitFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory limit, such as 2GB or 300M")
	fl.Var(&f.cpus, "cpus", "CPU limit in processors, such as 1.5 (whole ones where handler doctor says so)")
	fl.Int64Var(&f.processes, "processes", 0, "limit of processes and threads")
	fl.StringVar(&f.tmp, "tmp", "", "size of /tmp")
	fl.StringVar(&f.home, "home", "", "size of the home folder")
	fl.StringVar(&f.shm, "shm", "", "size of /dev/shm; browsers want 512MiB")
	fl.StringVar(&f.state, "state", "", "limit of what its login and transcripts may take on disk, or none")
	fl.StringVar(&f.lifetime, "lifetime", "", "time after which a run is ended, such as 2h, or none")
	fl.StringVar(&f.idle, "idle", "", "time without a message or a turn after which a run is ended, such as 30m, or none")
}

// defaultLimit is what a person writes for a saved limit that is to be Handler's own again.
const defaultLimit = "default"

// cpus is a number of processors on the command line; 0 is the default.
type cpus float64

func (c *cpus) String() string { return strconv.FormatFloat(float64(*c), 'g', -1, 64) }
func (c *cpus) Type() string   { return "float" }

func (c *cpus) Set(s string) error {
	if s == defaultLimit {
		*c = 0
		return nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("write a number of processors, such as 1.5, or %s: there is always a limit", defaultLimit)
	}
	*c = cpus(n)
	return nil
}

// save changes an agent as the flags say that were given.
func (f *limitFlags) save(cmd *cobra.Command, l *agents.Limits) error {
	given := cmd.Flags().Changed
	for _, s := range []struct {
		name     string
		from, to *string
	}{
		{"memory", &f.memory, &l.Memory}, {"tmp", &f.tmp, &l.Tmp}, {"home", &f.home, &l.Home}, {"shm", &f.shm, &l.Shm},
		{"state", &f.state, &l.State}, {"lifetime", &f.lifetime, &l.Lifetime}, {"idle", &f.idle, &l.Idle},
	} {
		if !given(s.name) {
			continue
		}
		switch *s.to = *s.from; {
		case *s.from == defaultLimit:
			*s.to = ""
		case *s.from == agents.NoLimit && slices.Contains([]string{"memory", "tmp", "home", "shm"}, s.name):
			return fmt.Errorf("--%s none: there is always a limit; write how much, such as 2GB, or --%s %s", s.name, s.name, defaultLimit)
		}
	}
	if given("cpus") {
		l.CPUs = float64(f.cpus)
	}
	if given("processes") {
		l.Processes = f.processes
	}
	return nil
}

// doubts are what a person should know of settings that are saved as they are and do something else than they may seem to.
func (f *agentFlags) doubts(cmd *cobra.Command) []string {
	var list []string
	if n := float64(f.limits.cpus); cmd.Flags().Changed("cpus") && n != math.Trunc(n) {
		list = append(list, "a part of a processor is given only where the kernel bounds processor time; elsewhere it is whole ones: handler doctor")
	}
	for _, rule := range f.allow {
		host, _, _ := strings.Cut(rule, ":")
		if host == "localhost" || host == "127.0.0.1" {
			list = append(list, rule+" is the sandbox itself inside, which needs no rule; this machine's own servers are not reached by it")
		}
	}
	return list
}

// request is what a run is asked for with.
func (f *limitFlags) request() types.Limits {
	return types.Limits{Memory: f.memory, CPUs: float64(f.cpus), Processes: f.processes, Tmp: f.tmp, Home: f.home, Shm: f.shm,
		State: f.state, Lifetime: f.lifetime, Idle: f.idle}
}

// limitRows are a run's limits for handler ps RUN: what, used, allowed, and who keeps it.
func limitRows(r types.Run) [][]string {
	allowed := func(l types.Limit, text string) string {
		if l.Value == 0 {
			return "no limit"
		}
		return text
	}
	by := func(l types.Limit) string {
		if l.Value == 0 {
			return "–"
		}
		return l.By
	}
	rows := [][]string{{"LIMIT", "USED", "ALLOWED", "KEPT BY"},
		{"memory", amount(r.MemoryBytes, r.MemoryLimit), allowed(r.MemoryLimit, amount(r.MemoryLimit.Value, r.MemoryLimit)), by(r.MemoryLimit)},
		{"CPU", seconds(time.Duration(r.CPUMillis)*time.Millisecond) + " of processor time",
			allowed(r.CPULimit, strconv.FormatFloat(float64(r.CPULimit.Value)/1000, 'f', -1, 64)+" processors"), by(r.CPULimit)},
		{"processes", fmt.Sprint(r.Processes), allowed(r.ProcLimit, fmt.Sprint(r.ProcLimit.Value)), by(r.ProcLimit)},
		{"state", amount(r.StateBytes, r.StateLimit), allowed(r.StateLimit, amount(r.StateLimit.Value, r.StateLimit)), by(r.StateLimit)},
	}
	for _, t := range []struct {
		name        string
		used, limit int64
	}{{"lifetime", time.Since(r.Since).Milliseconds(), r.Lifetime}, {"idle", r.Idle, r.IdleLimit}} {
		row := []string{t.name, span(t.used), "no limit", "–"}
		if t.limit > 0 {
			row[2], row[3] = span(t.limit), "handlerd"
		}
		rows = append(rows, row)
	}
	return rows
}

// amount writes bytes in the units of the limit that they are compared with.
func amount(n int64, limit types.Limit) string { return agents.Amount(n, limit.Value) }

// span writes milliseconds in the unit that people use of them.
func span(millis int64) string {
	switch d := time.Duration(millis) * time.Millisecond; {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d", int(d.Hours())/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
}
