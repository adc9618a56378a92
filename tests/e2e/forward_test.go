package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A forwarded is a `handler forward` that runs in the background.
type forwarded struct {
	cmd  *exec.Cmd
	done chan error
	said *bytes.Buffer // on its standard error; whole after done
}

// cmdForward starts handler forward in the background, and sets NAME to where it listens as host:port, and NAME_URL to
// what a browser opens. It ends with the script.
func cmdForward(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: forward NAME RUN PORT [FLAG…]")
	}
	cmd := exec.Command(filepath.Join(of(ts).bin, "handler"), append([]string{"forward", "--json"}, args[1:]...)...)
	f := &forwarded{cmd, make(chan error, 1), new(bytes.Buffer)}
	cmd.Env, cmd.Dir, cmd.Stderr = scriptEnv(ts), ts.MkAbs("."), f.said
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	go func() { f.done <- cmd.Wait() }()
	var said struct{ URL, Address string }
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		ts.Fatalf("handler forward said %q: %v", line, err)
	}
	s := of(ts)
	if s.forwards == nil {
		s.forwards = map[string]*forwarded{}
	}
	s.forwards[args[0]] = f
	ts.Defer(func() { _ = cmd.Process.Kill() })
	ts.Setenv(args[0], said.Address)
	ts.Setenv(args[0]+"_URL", said.URL)
}

// cmdForwardEnds waits until a forward has ended by itself, or ends it as Ctrl-C does; its exit code must be 0. What it
// said on its standard error is this command's.
func cmdForwardEnds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || of(ts).forwards[args[0]] == nil || len(args) == 2 && args[1] != "INT" || len(args) > 2 {
		ts.Fatalf("usage: forward-ends NAME [INT], for a NAME of forward")
	}
	f := of(ts).forwards[args[0]]
	if len(args) == 2 {
		ts.Check(f.cmd.Process.Signal(os.Interrupt))
	}
	select {
	case err := <-f.done:
		_, _ = ts.Stderr().Write(f.said.Bytes())
		ts.Check(err)
	case <-time.After(stopBound):
		ts.Fatalf("it has not ended in %v", stopBound)
	}
}

// cmdFetch asks for a page as a browser on the host does, for which every name under localhost is the machine itself,
// and prints the status and the page. With -host it says another Host than the address does, as a browser whose
// resolver was deceived.
func cmdFetch(ts *testscript.TestScript, neg bool, args []string) {
	host := ""
	if len(args) > 2 && args[0] == "-host" {
		host, args = args[1], args[2:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: fetch [-host HOST] URL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	ts.Check(err)
	if host != "" {
		req.Host = host
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		if name, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(name, ".localhost") {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
	resp, err := transport.RoundTrip(req)
	if neg {
		if err == nil {
			resp.Body.Close()
			ts.Fatalf("it answered %s", resp.Status)
		}
		return
	}
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.Status)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// cmdSay sends a line over TCP, ends what it says, and prints all that is answered.
func cmdSay(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: say HOST:PORT TEXT")
	}
	c, err := net.DialTimeout("tcp", args[0], commandLimit)
	ts.Check(err)
	defer c.Close()
	ts.Check(c.SetDeadline(time.Now().Add(commandLimit)))
	_, err = fmt.Fprintln(c, args[1])
	ts.Check(err)
	ts.Check(c.(*net.TCPConn).CloseWrite())
	_, err = io.Copy(ts.Stdout(), c)
	ts.Check(err)
}
