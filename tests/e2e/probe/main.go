// Probe is what a hostile program does inside a sandbox, for the end-to-end scripts. It is static and needs nothing of
// an image. It prints a line for each attempt; whether one that succeeds is a hole is for the script to say.
//
//	probe net OP:TARGET…     tcp:HOST:PORT, udp:HOST:PORT, dns:NAME, rawdns:SERVER, icmp:HOST, unix:PATH, abstract:NAME
//	probe get URL…           GET through the proxy, whatever NO_PROXY says, redirects followed through it
//	probe hold URL…          GET through the proxy, read until it ends or is cut
//	probe proxy "RAW"…       sends a Go string to the proxy as it is and prints how the answer begins
//	probe find TEXT DIR…     looks for TEXT (less its plus signs) in every environment, argv and memory it may read, and in files below DIR
//	probe status             what the kernel says of this process and of process 1
//	probe processes          every process: namespaces, capabilities, filters, against this one's
//	probe write PATH…        creates or overwrites each
//	probe syscalls           what the seccomp profile and the missing capabilities refuse
//	probe flood SOCKET N     opens N connections, holds them, and says how many were taken
//	probe drip ADDR KIND…    sends a request's header a byte at a time, or nothing, and says when it was cut
//	probe globals SOCKET     what the Wayland compositor on SOCKET offers, a line each
//	probe kill-all           SIGKILL to every process it can reach
//	probe stubborn           leaves a process behind that ignores every signal it can, in a session of its own
//	probe burrow             leaves behind whoever is hard to find or end (burrow.go), and says how many
//	probe loop               forks without end, at most 200 at a time, until killed
//	probe agent MODE ARG…    an ACP agent that misbehaves (agent.go)
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "probe: no command; see the source")
		os.Exit(2)
	}
	args := os.Args[2:]
	commands := map[string]func([]string){
		"net": tryNet, "get": get, "hold": hold, "proxy": proxy, "find": find, "status": status, "processes": processes, "write": write,
		"syscalls": syscalls, "flood": flood, "drip": drip, "kill-all": killAll, "stubborn": stubborn, "loop": loop, "agent": agentMain,
		"chroot-out": insideChroot, "globals": globals, "affinity": affinity, "eat": eat, "burrow": burrow,
	}
	f := commands[os.Args[1]]
	if f == nil {
		fmt.Fprintf(os.Stderr, "probe: no command %s\n", os.Args[1])
		os.Exit(2)
	}
	f(args)
}

// result prints what became of one attempt.
func result(what string, err error) {
	if err != nil {
		fmt.Printf("%s: refused: %v\n", what, err)
		return
	}
	fmt.Printf("%s: DONE\n", what)
}
