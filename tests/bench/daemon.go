package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/catalog"
)

// A daemon is a handlerd of bench's own: with configuration, state and a scope of its own, and the person's images.
type daemon struct {
	cmd     *exec.Cmd
	env     []string
	catalog catalog.Catalog
	scope   string
	socket  string // of the API
	podman  string // of its podman service
	api     *client.Client
}

// plainAgent is the demo agent with no addon, so with no browser.
const plainAgent = "plain"

// startDaemon starts it where none of ours runs yet. A daemon of the person's has to end, since both would use one
// podman storage; one with live runs is left alone.
func (b *bench) startDaemon(ctx context.Context) (*daemon, error) {
	if b.daemon != nil {
		return b.daemon, nil
	}
	d, err := b.newDaemon()
	if err != nil {
		return nil, err
	}
	if v, err := d.api.Version(ctx); err == nil {
		if v.Runs > 0 {
			return nil, fmt.Errorf("handlerd runs and has %d live runs; end them first: handler ps, handler kill RUN", v.Runs)
		}
		b.say("the daemon that runs is ended: the benchmark wants its own")
		if out, err := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "daemon", "stop").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("handler daemon stop: %w: %s", err, out)
		}
	}
	if err := d.start(b); err != nil {
		return nil, err
	}
	b.daemon = d
	return d, nil
}

func (b *bench) newDaemon() (*daemon, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	config, state := filepath.Join(b.dir, "config"), filepath.Join(b.dir, "state")
	d := &daemon{
		catalog: catalog.Catalog{Config: filepath.Join(config, "handler"), State: filepath.Join(state, "handler"), Home: home},
		scope:   filepath.Join(b.dir, "scope"),
	}
	for _, dir := range []string{d.catalog.AgentsDir(), d.catalog.State, d.scope} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	agent := "harness = \"demo\"\nbindings = {}\n"
	if err := os.WriteFile(filepath.Join(d.catalog.AgentsDir(), plainAgent+".toml"), []byte(agent), 0o600); err != nil {
		return nil, err
	}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "XDG_CONFIG_HOME=") && !strings.HasPrefix(kv, "XDG_STATE_HOME=") {
			d.env = append(d.env, kv)
		}
	}
	d.env = append(d.env, "XDG_CONFIG_HOME="+config, "XDG_STATE_HOME="+state)
	runtimeDir := os.Getenv("XDG_RUNTIME_DIR")
	if runtimeDir == "" {
		runtimeDir = fmt.Sprintf("/run/user/%d", os.Getuid())
	}
	d.socket = filepath.Join(runtimeDir, "handler", "handlerd.sock")
	d.podman = filepath.Join(runtimeDir, "handler", "podman", "p.sock")
	d.api = client.New(d.socket)
	return d, nil
}

func (d *daemon) start(b *bench) error {
	log, err := os.Create(filepath.Join(b.dir, "handlerd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ready, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	d.cmd = exec.Command(filepath.Join(b.bin, "handlerd"), "--ready-fd", "3")
	endWithUs(d.cmd)
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = d.env, "/", log, log, []*os.File{readyW}
	err = d.cmd.Start()
	readyW.Close()
	if err != nil {
		return err
	}
	said, _ := io.ReadAll(io.LimitReader(ready, 4<<10))
	if string(said) != "ready\n" {
		return errors.Join(fmt.Errorf("handlerd did not come up: %s", said), d.stop())
	}
	return nil
}

// stopDaemon ends our own daemon, if one runs.
func (b *bench) stopDaemon() error {
	if b.daemon == nil {
		return nil
	}
	err := b.daemon.stop()
	b.daemon = nil
	return err
}

func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	timer := time.AfterFunc(time.Minute, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	return d.cmd.Wait()
}

// A live run, initialized.
type live struct {
	stream *client.Stream
	in     *bufio.Reader
	took   time.Duration // from the request to the first byte of the agent
}

// initialize is what an editor says first.
const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}` + "\n"

// run starts a run of an agent and waits for its first byte, the beginning of its answer to initialize.
func (d *daemon) run(ctx context.Context, agent string) (*live, error) {
	began := time.Now()
	stream, err := d.api.Start(ctx, types.RunRequest{Agent: agent, Cwd: d.scope})
	if err != nil {
		return nil, err
	}
	defer until(ctx, func() { stream.Close() })()
	if _, err := io.WriteString(stream.UnixConn, initialize); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	l := &live{stream: stream, in: bufio.NewReader(stream)}
	if _, err := l.in.Peek(1); err != nil {
		return nil, errors.Join(fmt.Errorf("the agent said nothing: %w", err), stream.Close())
	}
	l.took = time.Since(began)
	line, err := l.in.ReadBytes('\n')
	if err != nil || !bytes.Contains(line, []byte(`"protocolVersion":1`)) {
		return nil, errors.Join(fmt.Errorf("initialize was answered %.200s: %w", line, err), stream.Close())
	}
	return l, nil
}

// session opens a session in the run's scope.
func (l *live) session(scope string) error {
	request, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": map[string]any{"cwd": scope, "mcpServers": []any{}},
	})
	if err != nil {
		return err
	}
	if _, err := l.stream.UnixConn.Write(append(request, '\n')); err != nil {
		return err
	}
	for {
		line, err := l.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		switch {
		case bytes.Contains(line, []byte(`"sessionId"`)) && bytes.Contains(line, []byte(`"id":1`)):
			return nil
		case bytes.Contains(line, []byte(`"error"`)):
			return fmt.Errorf("session/new was answered %.300s", line)
		}
	}
}

// ask gives the time of a small request to the agent and its answer.
func (l *live) ask() (time.Duration, error) {
	began := time.Now()
	if _, err := io.WriteString(l.stream.UnixConn, `{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}`+"\n"); err != nil {
		return 0, err
	}
	line, err := l.in.ReadBytes('\n')
	if err != nil || !bytes.Contains(line, []byte(`"sessions"`)) {
		return 0, fmt.Errorf("session/list was answered %.200s: %w", line, err)
	}
	return time.Since(began), nil
}

// end ends the run and returns when nothing of it is left.
func (l *live) end(ctx context.Context, d *daemon) error {
	defer l.stream.Close()
	return d.api.Kill(ctx, l.stream.RunID)
}
