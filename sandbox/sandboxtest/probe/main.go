// Command probe is what the conformance suite runs inside sandboxes. It connects to the socket named by --to, writes
// what it found there as one JSON value, and keeps the connection open as long as it lives. It is static and needs
// nothing of an image.
//
//	probe [--to SOCKET] [--mark TEXT] COMMAND [ARG...]
//
//	exit CODE          exits with that code
//	kill NUMBER        ends by that signal
//	report             a facts.Report
//	files PATH...      []facts.File
//	try OP=ARG...      []facts.Outcome, one for every OP=ARG
//	wait               reports true and waits; TERM ends it
//	stubborn           ignores TERM, and so does its grandchild in a session of its own; both report true
//	redial SOCKET N    connects N times, each time until the other side closes, and reports how often it did
//	plant DIR          makes files of every kind in DIR, reports true and waits
//	juggle DIR         lets a folder and a symbolic link in DIR change places all the time; reports true first
//	echo               copies standard input to standard output
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	to := flag.String("to", "", "socket that takes the result")
	mark := flag.String("mark", "", "text by which the test finds this process")
	flag.Parse()
	args := flag.Args()
	if len(args) == 0 {
		fail(fmt.Errorf("no command"))
	}
	out := io.Writer(os.Stdout)
	if *to != "" && args[0] != "orphan" { // which has nothing to report
		c, err := net.Dial("unix", *to)
		if err != nil {
			fail(err)
		}
		out = c
	}
	p := probe{to: *to, mark: *mark, out: json.NewEncoder(out)}
	if err := p.run(args[0], args[1:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(99)
}

type probe struct {
	to, mark string
	out      *json.Encoder
}

func (p probe) run(command string, args []string) error {
	switch command {
	case "exit", "kill":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		if command == "exit" {
			os.Exit(n)
		}
		if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
			return err
		}
		select {} // until it is there
	case "report":
		return p.out.Encode(report())
	case "files":
		return p.out.Encode(files(args))
	case "try":
		return p.out.Encode(tryAll(args))
	case "wait":
		if err := p.out.Encode(true); err != nil {
			return err
		}
		time.Sleep(time.Hour) // waits for nothing: the suite ends it
		return nil
	case "stubborn", "grandchild":
		return p.stubborn(command == "stubborn")
	case "orphan":
		return p.again("grandchild").Start()
	case "redial":
		return p.redial(args)
	case "plant", "juggle":
		return p.files(command, args[0])
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	return fmt.Errorf("unknown command %s", command)
}

// stubborn ignores TERM for ever, with a grandchild whose parent is gone.
func (p probe) stubborn(fork bool) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if fork {
		if err := p.again("orphan").Run(); err != nil { // its child outlives it
			return err
		}
	}
	if err := p.out.Encode(true); err != nil {
		return err
	}
	time.Sleep(time.Hour) // waits for nothing: the suite ends it
	return nil
}

// again is this program with another command, in a session of its own.
func (p probe) again(command string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, "--to", p.to, "--mark", p.mark, command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// redial connects again and again, however often the listener is away in between.
func (p probe) redial(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	done := 0
	for end := time.Now().Add(20 * time.Second); done < n && time.Now().Before(end); {
		c, err := net.Dial("unix", args[0])
		if err != nil {
			time.Sleep(5 * time.Millisecond) // a listener's return makes no event that is seen from here
			continue
		}
		if b, err := io.ReadAll(c); err == nil && string(b) == "hello" {
			done++
		}
		c.Close()
	}
	return p.out.Encode(done)
}
