// Command handler-guest is the one program of ours inside a sandbox (contract E). As PID 1 it fetches the Spec's
// files, starts the command with its standard input and output joined to acp.sock, carries 127.0.0.1:3128 to
// egress.sock, forwards signals, reaps orphans and takes the command's exit code. It is static and needs nothing of
// the image.
//
// Without acp.sock in the run directory the command reads /dev/null and writes where the guest writes.
//
// Exit codes: the command's own, 128 + signal number when a signal ended it, 127 when it was not found, 126 when it
// cannot be executed, 125 when the guest itself could not set it up.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/handlerd/handler/sandbox"
)

const usage = `usage: handler-guest init [flags] -- COMMAND [ARG...]
       handler-guest mcp NAME [TOKEN]

init runs COMMAND as a sandbox's first process; mcp is a stdio MCP server that handlerd hosts. It is mounted into every
sandbox and started by handlerd.
`

func main() {
	if len(os.Args) == 2 && os.Args[1] == "shell" {
		os.Exit(runShell()) // started by PID 1 alone: the connection is a descriptor
	}
	if len(os.Args) >= 2 && os.Args[1] == "mcp" {
		os.Exit(runMCP(os.Args[2:]))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "handler-guest: %v\n%s", err, usage)
		os.Exit(exitSetup)
	}
	runtime.GOMAXPROCS(min(2, runtime.NumCPU())) // it only moves bytes; the processors are the agent's
	os.Exit(run(o))
}

// options are what the command line says.
type options struct {
	runDir     string
	runtimeDir string // "" for none
	proxyAddr  string // "" for none
	files      bool
	screen     screenSize // zero for none
	argv       []string
}

func parse(args []string) (options, error) {
	if len(args) == 0 || args[0] != "init" {
		if len(args) == 1 && (args[0] == "-h" || args[0] == "--help") {
			fmt.Print(usage)
			return options{}, flag.ErrHelp
		}
		return options{}, errors.New("the first argument must be init")
	}
	var o options
	f := flag.NewFlagSet("handler-guest init", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	f.BoolVar(&o.files, "files", false, "fetch files over files.sock before the command starts")
	f.StringVar(&o.runDir, "run-dir", sandbox.RunDirTarget, "directory of the daemon's sockets")
	f.StringVar(&o.runtimeDir, "runtime-dir", sandbox.RuntimeTarget, "becomes XDG_RUNTIME_DIR if it exists; \"\" for none")
	f.StringVar(&o.proxyAddr, "proxy-addr", sandbox.ProxyAddr, "loopback address that leads to egress.sock; \"\" for none")
	f.Var(&o.screen, "screen", "start a display of the sandbox's own, of WIDTHxHEIGHT pixels, before the command")
	if err := f.Parse(args[1:]); err != nil {
		return options{}, err
	}
	o.argv = f.Args()
	if o.screen.width != 0 && o.runtimeDir == "" {
		return options{}, errors.New("a screen needs a runtime folder")
	}
	if len(o.argv) == 0 || o.argv[0] == "" {
		return options{}, errors.New("no command after --")
	}
	return o, nil
}
