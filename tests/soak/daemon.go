package main

import (
	"context"
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
)

// A daemon is a handlerd of the soak's own.
type daemon struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has
	dir     string        // for all that the soak makes
	socket  string        // of the API
	runtime string        // Handler's runtime folder
	data    string        // Handler's folder of images
	api     *client.Client
}

// plainAgent is the demo agent with no addon, so with no browser.
const plainAgent = "plain"

// startDaemon starts it. A daemon of the person's has to end for that; one with live runs is left alone.
func startDaemon(ctx context.Context, o options, dir string) (*daemon, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, ended: make(chan struct{})}
	config := filepath.Join(dir, "config")
	agents := filepath.Join(config, "handler", "agents")
	if err := errors.Join(os.MkdirAll(agents, 0o700), os.WriteFile(filepath.Join(agents, plainAgent+".toml"),
		[]byte("harness = \"demo\"\nbindings = {}\n"), 0o600)); err != nil {
		return nil, err
	}
	var env []string
	runtimeDir, dataDir := fmt.Sprintf("/run/user/%d", os.Getuid()), filepath.Join(os.Getenv("HOME"), ".local/share")
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "XDG_CONFIG_HOME" || name == "XDG_STATE_HOME":
			continue
		case name == "XDG_RUNTIME_DIR" && value != "":
			runtimeDir = value
		case name == "XDG_DATA_HOME" && filepath.IsAbs(value):
			dataDir = value
		}
		env = append(env, kv)
	}
	env = append(env, "XDG_CONFIG_HOME="+config, "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	d.runtime, d.data = filepath.Join(runtimeDir, "handler"), filepath.Join(dataDir, "handler")
	d.socket = filepath.Join(d.runtime, "handlerd.sock")
	d.api = client.New(d.socket)
	if v, err := d.api.Version(ctx); err == nil {
		if v.Runs > 0 {
			return nil, fmt.Errorf("handlerd runs and has %d live runs; end them first: handler ps, handler kill RUN", v.Runs)
		}
		say("the daemon that runs is ended: the soak wants its own")
		if out, err := exec.CommandContext(ctx, filepath.Join(root, "bin/handler"), "daemon", "stop").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("handler daemon stop: %w: %s", err, out)
		}
	}
	return d, d.start(filepath.Join(root, "bin/handlerd"), env)
}

func (d *daemon) start(program string, env []string) error {
	log, err := os.Create(filepath.Join(d.dir, "handlerd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ready, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	d.cmd = exec.Command(program, "--ready-fd", "3")
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = env, "/", log, log, []*os.File{readyW}
	err = d.cmd.Start()
	readyW.Close()
	if err != nil {
		return fmt.Errorf("%w; build it first: make build", err)
	}
	go func() {
		_ = d.cmd.Wait() // its log says why
		close(d.ended)
	}()
	said, _ := io.ReadAll(io.LimitReader(ready, 4<<10))
	if string(said) != "ready\n" {
		return errors.Join(fmt.Errorf("handlerd did not come up: %s", said), d.stop())
	}
	return nil
}

// alive says whether the daemon's process is there: it must outlive all that is killed around it.
func (d *daemon) alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-d.ended:
		return nil
	case <-time.After(time.Minute):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return errors.New("handlerd did not end within a minute of TERM")
	}
}
