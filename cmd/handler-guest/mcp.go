package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

const mcpUsage = `usage: handler-guest mcp NAME [TOKEN]

A stdio MCP server: joins standard input and output to the server NAME that handlerd hosts for this run. Agents are
given it as a command; it is no use outside a sandbox.
`

// runMCP is `handler-guest mcp NAME [TOKEN]`: 0 when either side is done, 1 with the reason on standard error.
func runMCP(args []string) int {
	if len(args) < 1 || len(args) > 2 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(os.Stderr, mcpUsage)
		return 2
	}
	hello := guestwire.MCPHello{Server: args[0]}
	if len(args) == 2 {
		hello.Token = args[1]
	}
	if err := pipeMCP(filepath.Join(sandbox.RunDirTarget, sandbox.SocketMCP), hello, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "handler-guest mcp %s: %v\n", hello.Server, err)
		return 1
	}
	return 0
}

// pipeMCP joins in and out to the server behind socket until one side is done. It ends with the server even while in
// is open: an agent that waits for an answer must see that none will come.
func pipeMCP(socket string, hello guestwire.MCPHello, in io.Reader, out io.Writer) error {
	line, err := hello.Line()
	if err != nil {
		return err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("handlerd hosts no MCP servers for this run: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write(line); err != nil {
		return fmt.Errorf("handlerd does not listen: %w", err)
	}
	go func() {
		// What fails here is seen below: the server ends when its input does.
		_, _ = io.Copy(conn, in)
		_ = conn.CloseWrite()
	}()
	r := bufio.NewReaderSize(conn, 64<<10)
	why, refused, err := guestwire.ReadMCPRefusal(r)
	if refused {
		return errors.New(why)
	}
	if err == nil {
		_, err = r.WriteTo(out)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
