package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// inspectorLimit bounds one command of the inspector, the start of a server in its sandbox included.
const inspectorLimit = time.Minute

// inspector is the real @modelcontextprotocol/inspector, an MCP client that is none of ours.
type inspector struct {
	program string // a script of Node's
	node    string // the folder of the Node that it wants, which is acpx's
}

// TestInspector has the real MCP inspector talk to what handlerd hosts.
func TestInspector(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end scripts need the real thing; run: make test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir, err := installNPM(ctx, filepath.Join(the.root, "tests/e2e/npm-inspector"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := installACPX(ctx, the.root)
	if err != nil {
		t.Fatal(err)
	}
	i := &inspector{program: filepath.Join(dir, "node_modules/.bin/mcp-inspector"), node: client.node}
	runScripts(t, func(name string) bool { return name == "mcp-inspector" }, map[string]command{"inspector": i.run, "capture": cmdCapture})
}

// run is the command
//
//	inspector CODE ARG…   mcp-inspector --cli --format json ARG…; the exit code must be CODE
func (i *inspector) run(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: inspector CODE ARG…")
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.program, append([]string{"--cli", "--format", "json"}, args[1:]...)...)
	cmd.Env = append(scriptEnv(ts), "PATH="+i.node+":"+ts.Getenv("PATH")) // the last one counts
	cmd.Dir = ts.MkAbs(".")
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	_, _ = ts.Stdout().Write(stdout.Bytes()) // strings.Builders
	_, _ = ts.Stderr().Write(stderr.Bytes())
	if ctx.Err() != nil {
		ts.Fatalf("the inspector took longer than %v", inspectorLimit)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("the inspector: %v", err)
	}
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
