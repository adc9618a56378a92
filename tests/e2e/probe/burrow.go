package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// burrowers are those that burrow leaves behind. Each has a session and a process group of its own, no descriptor that
// anybody gave it and a parent that has ended, ignores every signal that one can ignore, and is called like somebody
// else in its command line.
var burrowers = map[string]struct {
	called string
	live   func()
}{
	"sleeper": {"/usr/bin/conmon", func() {}},
	"guest":   {"/run/handler-bin/handler-guest", func() {}},
	"stopped": {"conmon", func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }},
	"tracer":  {"init", trace},
	"factory": {"catatonit", beget},
}

// burrow without an argument starts all of them, through one that ends at once; with two it is one of them.
func burrow(args []string) {
	if len(args) == 0 {
		for name := range burrowers {
			result(name, detached(os.Args[0], "burrow", "fork", name).Run())
		}
		return
	}
	b := burrowers[args[1]]
	if args[0] == "fork" {
		cmd := detached(b.called, "burrow", "live", args[1])
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
		os.Exit(0) // and the child is an orphan
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)
	b.live()
	time.Sleep(time.Hour) // to be killed is what it is for
}

func detached(called string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = called
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// trace holds a child at its first instruction, as a debugger does: it can handle no signal while it is held.
func trace() {
	runtime.LockOSThread()
	cmd := detached("conmon", "burrow", "live", "sleeper")
	cmd.SysProcAttr.Ptrace = true
	_ = cmd.Start() // where tracing is forbidden the tracer alone is left behind
}

// beget is an orphan factory: a child that lives on as its parent, who ends, for ever. Whoever looks for a process by
// its number comes too late.
func beget() {
	time.Sleep(10 * time.Millisecond) // a test machine has other things to do
	_ = detached("catatonit", "burrow", "live", "factory").Start()
	os.Exit(0)
}
