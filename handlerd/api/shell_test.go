package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// A catShell says every byte back, then which size it was given, and ends with code 5.
type catShell struct{}

func (catShell) Abort() {}
func (catShell) Serve(_ context.Context, conn net.Conn) error {
	defer conn.Close()
	r, w := guestwire.NewShellReader(conn), guestwire.NewShellWriter(conn)
	for {
		f, err := r.Next()
		if err != nil {
			return err
		}
		switch f.Kind {
		case guestwire.ShellInput:
			err = errors.Join(w.Write(guestwire.ShellFrame{Kind: guestwire.ShellOutput, Data: f.Data}),
				w.Write(guestwire.ShellFrame{Kind: guestwire.ShellTaken, Taken: uint32(len(f.Data))}))
		case guestwire.ShellResize:
			err = w.Write(guestwire.ShellFrame{Kind: guestwire.ShellErrors, Data: []byte("resized")})
		case guestwire.ShellInputEnd:
			return w.Write(guestwire.ShellFrame{Kind: guestwire.ShellExit, Code: 5})
		}
		if err != nil {
			return err
		}
	}
}

func serveShells(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := api.New(api.Options{Runs: &echoRuns{}, Images: noImages{}, Stop: func() {}, Version: "v1",
		Shell: func(_ context.Context, id string, req types.ShellRequest) (api.Attached, error) {
			if id != "k3f9" || len(req.Command) != 1 {
				return nil, fault.New(fault.NotFound, "see: handler ps", "there is no run %q", id)
			}
			return catShell{}, nil
		}})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), <-done); err != nil {
			t.Error(err)
		}
	})
	return socket
}

// More input than a window passes, in order, with the exit code; a failed start is an ordinary error; and leaving ends
// it at once.
func TestShell(t *testing.T) {
	c := client.New(serveShells(t))
	s, err := c.Shell(t.Context(), "k3f9", types.ShellRequest{Command: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(1, 2); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789abcdef", guestwire.ShellWindow/8)
	var out, errout bytes.Buffer
	code, err := s.Serve(strings.NewReader(text), &out, &errout)
	if err != nil || code != 5 || out.String() != text || errout.String() != "resized" {
		t.Errorf("%d %v, %d bytes, %q", code, err, out.Len(), errout.String())
	}
	if _, err := c.Shell(t.Context(), "none", types.ShellRequest{Command: []string{"cat"}}); err == nil || fault.Of(err).Kind != fault.NotFound {
		t.Errorf("no run: %v", err)
	}
	if s, err = c.Shell(t.Context(), "k3f9", types.ShellRequest{Command: []string{"cat"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Serve(leaver{}, io.Discard, io.Discard); !errors.Is(err, client.ErrLeave) {
		t.Errorf("left: %v", err)
	}
}

type leaver struct{}

func (leaver) Read([]byte) (int, error) { return 0, client.ErrLeave }

// Without an upgrade there is no shell.
func TestShellNeedsUpgrade(t *testing.T) {
	socket := serveShells(t)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequest(http.MethodPost, "http://h/v1/runs/k3f9/shell", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 12)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "HTTP/1.1 400" {
		t.Errorf("%q %v", buf, err)
	}
}
