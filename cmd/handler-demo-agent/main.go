// Command handler-demo-agent is a small scripted ACP agent, so that everything about Handler can be tried with no
// account and no model. A prompt is a list of steps, one a line or joined by "then", "and" or ";": see help.go. It
// does them as a real agent would: through the MCP servers of its session, with permission asked before it acts,
// tool calls reported as they go and sessions that can be loaded again.
//
// It speaks ACP version 1 on stdin and stdout. What MCP servers write to stderr appears on its own, with their name
// in front. Sessions are kept in $HOME/.handler-demo/sessions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// version of the agent, as initialize tells it.
const version = "1.0.0"

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "--version":
			fmt.Println("handler-demo-agent", version)
			return 0
		case "--help", "-h":
			fmt.Print("handler-demo-agent speaks ACP on stdin and stdout; an ACP client starts it.\n\n", helpText)
			return 0
		}
		fmt.Fprintf(os.Stderr, "handler-demo-agent: unknown argument %q; it takes --help and --version only\n", os.Args[1])
		return 2
	}
	// A client that goes away must end us in order, not by SIGPIPE: MCP servers are to be stopped.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	dir := ""
	if home, err := os.UserHomeDir(); err == nil {
		dir = filepath.Join(home, ".handler-demo", "sessions")
	}
	if err := serve(ctx, stdio{os.Stdin, os.Stdout}, dir, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "handler-demo-agent:", err)
		return 1
	}
	return 0
}

// stdio is the two standard streams as one connection.
type stdio struct {
	io.ReadCloser
	out io.WriteCloser
}

// Write writes to standard output.
func (s stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close closes both.
func (s stdio) Close() error { return errors.Join(s.ReadCloser.Close(), s.out.Close()) }
