package fake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

const markName = "HANDLER_FAKE_SANDBOX"

// A box is one sandbox, from its first folder to its removal.
type box struct {
	id, name string
	labels   map[string]string
	dir      string            // its own folder
	tmpfs    map[string]string // the folders that stand for its tmpfs, by their paths inside
	guest    bool              // whether the first process is the guest
	cmd      *exec.Cmd
	started  time.Time
	reaped   atomic.Bool   // the first process's number may be another's by now
	done     chan struct{} // closed when the first process has ended and its tree is gone
	exit     sandbox.Exit  // valid after done
}

func (b *box) running() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (id string, err error) {
	if err := check(spec); err != nil {
		return "", err
	}
	if err := d.fault(StepCheck, spec.Name); err != nil {
		return "", err
	}
	if err := d.takeName(spec.Name); err != nil {
		return "", err
	}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	undo = append(undo, func() { d.mu.Lock(); defer d.mu.Unlock(); delete(d.names, spec.Name) })
	b := &box{id: rand.Text(), name: spec.Name, labels: maps.Clone(spec.Labels), guest: spec.Guest != "",
		started: time.Now(), done: make(chan struct{})}
	b.dir = filepath.Join(d.dir, b.id)
	undo = append(undo, func() { _ = removeAll(b.dir) })
	v, err := d.view(b, spec)
	if err != nil {
		return "", err
	}
	b.tmpfs = v.tmpfs
	if err := d.makeFolders(b, spec, v, &undo); err != nil {
		return "", err
	}
	if err := d.exec(ctx, b, spec, v, &undo); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", errors.New("fake sandbox: the driver is closed")
	}
	d.boxes[b.id] = b
	d.log.Info("fake sandbox started", "sandbox", b.name, "id", b.id)
	return b.id, nil
}

func (d *Driver) takeName(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("fake sandbox: the driver is closed")
	}
	if d.names[name] {
		return &sandbox.EngineError{Op: "start", Err: fmt.Errorf("the name %s is taken", name), Hint: "remove that sandbox first"}
	}
	d.names[name] = true
	return nil
}

// makeFolders makes what the mapping leads to.
func (d *Driver) makeFolders(b *box, spec sandbox.Spec, v *view, undo *[]func()) error {
	for _, dir := range v.own {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return engineError(err)
		}
	}
	if err := d.fault(StepFolders, spec.Name); err != nil {
		return err
	}
	for _, vol := range spec.Volumes {
		if _, err := os.Lstat(vol.Source); err == nil {
			continue
		}
		if err := os.MkdirAll(vol.Source, 0o700); err != nil {
			return engineError(err)
		}
		*undo = append(*undo, func() { _ = os.Remove(vol.Source) })
	}
	for link, to := range v.links {
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return engineError(err)
		}
		if err := os.Symlink(to, link); err != nil {
			return engineError(err)
		}
	}
	return d.fault(StepVolumes, spec.Name)
}

// exec serves the files and runs the first process.
func (d *Driver) exec(ctx context.Context, b *box, spec sandbox.Spec, v *view, undo *[]func()) error {
	runDir := spec.RunDir
	if runDir == "" {
		runDir = filepath.Join(b.dir, "run")
		if err := os.Mkdir(runDir, 0o700); err != nil {
			return engineError(err)
		}
	}
	var files *rundir.FileServer
	if len(spec.Files) > 0 {
		var err error
		if files, err = rundir.ServeFiles(runDir, v.files(spec.Files)); err != nil {
			return err
		}
		defer files.Close()
	}
	if err := d.fault(StepFiles, spec.Name); err != nil {
		return err
	}
	if err := d.startProcess(b, spec, v, runDir); err != nil {
		return err
	}
	*undo = append(*undo, func() { _ = b.kill(context.Background()); <-b.done })
	if err := d.fault(StepExec, spec.Name); err != nil {
		return err
	}
	if files != nil {
		if err := b.waitFiles(ctx, files); err != nil {
			return err
		}
	}
	return d.fault(StepWritten, spec.Name)
}

// waitFiles waits until the guest has the files, or has ended without.
func (b *box) waitFiles(ctx context.Context, files *rundir.FileServer) error {
	result := make(chan error, 1)
	go func() { result <- files.Wait(ctx) }()
	var err error
	select {
	case err = <-result:
	case <-b.done:
		select { // its answer may be on the way still
		case err = <-result:
		case <-time.After(100 * time.Millisecond):
			files.Close()
			err = <-result
		}
	}
	if err != nil {
		return engineError(err)
	}
	return nil
}

func (d *Driver) startProcess(b *box, spec sandbox.Spec, v *view, runDir string) error {
	argv := v.argv(spec.Command)
	if b.guest {
		init := []string{spec.Guest, "init", "--run-dir", runDir, "--proxy-addr", "", "--runtime-dir", v.path(sandbox.RuntimeTarget)}
		if len(spec.Files) > 0 {
			init = append(init, "--files")
		}
		if spec.Display != nil {
			init = append(init, spec.Display.GuestFlags()...)
		}
		argv = append(append(init, "--"), argv...)
	}
	env, path := v.env(spec, b.id)
	log, err := os.OpenFile(filepath.Join(b.dir, "output"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return engineError(err)
	}
	defer log.Close()
	program, err := lookPath(argv[0], path)
	if err != nil {
		return engineError(err)
	}
	dir := "/"
	if spec.Dir != "" {
		dir = v.path(spec.Dir)
	}
	b.cmd = &exec.Cmd{Path: program, Args: argv, Env: env, Dir: dir, Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := b.cmd.Start(); err != nil {
		return engineError(err)
	}
	d.wg.Go(b.reap)
	return nil
}

// reap waits for the first process. Its end is the sandbox's: what it leaves is killed, as a PID namespace does.
func (b *box) reap() {
	defer close(b.done)
	_ = b.cmd.Wait()
	b.reaped.Store(true)
	b.exit = sandbox.Exit{Known: true, Code: b.cmd.ProcessState.ExitCode()}
	if s, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		b.exit.Code = 128 + int(s.Signal())
	}
	_ = b.kill(context.Background())
}

func engineError(err error) error { return &sandbox.EngineError{Op: "start", Err: err} }
