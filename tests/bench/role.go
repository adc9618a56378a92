package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Bench is several programs in one: what stands in the middle of a hop, and what stands at its far end, are processes
// of their own, as in life. A role is such a program; it ends when its standard input does.
const rolePrefix = "role:"

func roles() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"agent": agentRole, "hop": hopRole, "mcp": mcpRole, "answer": answerRole, "origin": originRole, "proxy": proxyRole, "stream": streamRole,
	}
}

// asRole tells whether the command line asks for a role.
func asRole(argv []string) (name string, args []string, ok bool) {
	if len(argv) < 2 {
		return "", nil, false
	}
	name, ok = strings.CutPrefix(argv[1], rolePrefix)
	return name, argv[2:], ok
}

func runRole(name string, args []string) int {
	f := roles()[name]
	if f == nil {
		fmt.Fprintln(os.Stderr, "bench: there is no role", name)
		return 2
	}
	if err := f(args); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
		return 1
	}
	return 0
}

// endWithInput ends the process when its standard input ends: nothing is left of a bench that was killed.
func endWithInput() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

// A helper is a program that was started for a measurement.
type helper struct {
	cmd   *exec.Cmd
	stdin io.Closer
	first string // its first line of output
}

const helperTime = 20 * time.Second // for a helper to come up

// startHelper starts a program and waits for its first line, which says that it is ready, and where.
func startHelper(name string, args ...string) (*helper, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &helper{cmd: cmd, stdin: in}
	timer := time.AfterFunc(helperTime, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s %s did not come up: %w", name, strings.Join(args, " "), err), h.close())
	}
	h.first = strings.TrimSpace(line)
	return h, nil
}

// startRole starts one of our own roles.
func startRole(role string, args ...string) (*helper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startHelper(self, append([]string{rolePrefix + role}, args...)...)
}

// close ends the helper, with force if it does not end with its input.
func (h *helper) close() error {
	_ = h.stdin.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = h.cmd.Process.Kill() })
	defer timer.Stop()
	_ = h.cmd.Wait() // how it ended says nothing
	return nil
}

// until runs f at the end of ctx; stop takes that back.
func until(ctx context.Context, f func()) (stop func()) {
	cancel := context.AfterFunc(ctx, f)
	return func() { cancel() }
}

// kill ends a program that does not end with its input.
func (h *helper) kill() error {
	_ = h.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	return h.close()
}

// endWithUs has the kernel end a program when this one dies, whoever kills it.
func endWithUs(cmd *exec.Cmd) {
	runtime.LockOSThread() // the kernel watches the thread that starts it: that of the main goroutine, which stays
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

// waitListening waits until something takes connections at an address of loopback.
func waitListening(address string) error {
	deadline := time.Now().Add(helperTime)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing listens on %s: %w", address, err)
		}
		time.Sleep(10 * time.Millisecond) // a listener announces itself to nobody
	}
}
