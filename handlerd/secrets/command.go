package secrets

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

	"github.com/handlerd/handler/agents"
)

// command reads what a program of the person's prints. What it says on standard error is not even kept: it may hold
// what it should not.
func (r *Reader) command(ctx context.Context, source agents.Secret) (Value, error) {
	try := "run it in a terminal to see what it says; a program that asks for something needs its own agent or login"
	out, err := r.run(ctx, source, source.Command, nil)
	if err != nil {
		return Value{}, explain(source, err, try)
	}
	return r.value(source, out)
}

// pass reads an entry of the person's password store, decrypted by their gpg-agent.
func (r *Reader) pass(ctx context.Context, source agents.Secret) (Value, error) {
	if _, err := r.entry(source); err != nil {
		return Value{}, err
	}
	var said tailBuffer
	out, err := r.run(ctx, source, []string{"pass", "show", source.Pass}, &said)
	if err != nil {
		if reason, remedy := passFault(string(said.kept), source.Pass); reason != "" {
			return Value{}, &Error{source.String(), reason, remedy, err}
		}
		return Value{}, explain(source, err, "try it: pass show "+source.Pass)
	}
	return r.value(source, out)
}

// entry finds the file of an entry. pass itself prints a listing where the name is that of a folder.
func (r *Reader) entry(source agents.Secret) (string, error) {
	if _, err := r.program(source, "pass"); err != nil {
		return "", err
	}
	store := r.opts.PasswordStore
	if store == "" {
		store = filepath.Join(r.opts.Home, ".password-store")
	}
	file := filepath.Join(store, source.Pass+".gpg")
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", &Error{source.String(), "is not in the password store " + store, "put it there: pass insert " + source.Pass, err}
	case err != nil:
		return "", &Error{source.String(), "cannot be looked at: " + cause(err), "try it: pass show " + source.Pass, err}
	case !info.Mode().IsRegular():
		return "", &Error{source.String(), "is no entry of the password store", "name an entry: pass ls", nil}
	}
	return file, nil
}

// passFault puts what gpg says into words of ours. Nothing of its own is shown.
func passFault(said, entry string) (reason, remedy string) {
	ask := "run it in a terminal, so that gpg-agent keeps the passphrase for a while: pass show " + entry + " >/dev/null"
	// The first that fits: gpg ends with "No secret key" also where the passphrase was not given.
	for _, known := range []struct{ sign, reason, remedy string }{
		{"Operation cancelled", "was not decrypted: the passphrase was not given", ask},
		{"Inappropriate ioctl", "was not decrypted: nothing could ask for the passphrase", ask},
		{"annot open display", "was not decrypted: nothing could ask for the passphrase", ask},
		{"o pinentry", "was not decrypted: there is no pinentry to ask for the passphrase", ask},
		{"No such device or address", "was not decrypted: nothing could ask for the passphrase", ask},
		{"Timeout", "was not decrypted: nobody gave the passphrase in time", ask},
		{"Bad passphrase", "was not decrypted: the passphrase was wrong", "try it: pass show " + entry},
		{"No secret key", "was not decrypted: its key is not here, or nobody could be asked for the passphrase", ask + "; or encrypt the store to a key of yours: pass init YOUR-KEY"},
	} {
		if strings.Contains(said, known.sign) {
			return known.reason, known.remedy
		}
	}
	return "", ""
}

// Why a program gave nothing.
var (
	errTooLong = errors.New("it prints more than a secret may have")
	errSlow    = errors.New("it took too long")
)

// explain says why a program failed, by what the system knows of it alone.
func explain(source agents.Secret, err error, remedy string) error {
	var missing *Error
	var exit *exec.ExitError
	e := &Error{Source: source.String(), Remedy: remedy, Err: err}
	switch {
	case errors.As(err, &missing):
		return missing
	case errors.Is(err, errTooLong):
		e.Reason = fmt.Sprintf("has more than %d MiB", MaxBytes>>20)
	case errors.Is(err, errSlow):
		e.Reason = fmt.Sprintf("cannot be had: its program did not end within %v", CommandTimeout)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Reason = "was not waited for"
	case errors.Is(err, exec.ErrWaitDelay):
		e.Reason = "cannot be had: its program left another one behind that keeps the output open"
	case errors.As(err, &exit) && exit.Exited():
		e.Reason = fmt.Sprintf("cannot be had: its program ended with exit code %d", exit.ExitCode())
	case errors.As(err, &exit):
		e.Reason = "cannot be had: its program was ended by a signal"
	default:
		e.Reason = "cannot be had: its program could not be started: " + cause(err)
	}
	return e
}

// run runs a program in a session of its own, so that it can ask on no terminal and ends with all that it started in it,
// with the environment of the options and nothing else, and gives what it printed.
func (r *Reader) run(ctx context.Context, source agents.Secret, argv []string, said io.Writer) ([]byte, error) {
	program, err := r.program(source, argv[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errSlow)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := &boundedBuffer{full: func() { stop(errTooLong) }}
	cmd := exec.CommandContext(ctx, program, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = append([]string{"HOME=" + r.opts.Home, "PATH=" + r.opts.Path}, r.opts.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return out.data, nil
}

// program finds a program by its name on the path of the options, or as it is if it is a path.
func (r *Reader) program(source agents.Secret, name string) (string, error) {
	dirs := filepath.SplitList(r.opts.Path)
	if strings.ContainsRune(name, '/') {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &Error{source.String(), "cannot be had: there is no program " + name, "install it, or give its absolute path; handlerd looks in " + r.opts.Path, exec.ErrNotFound}
}

// A boundedBuffer keeps MaxBytes and calls full when there are more.
type boundedBuffer struct {
	data []byte
	full func()
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > MaxBytes {
		b.full()
		return 0, errTooLong
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

// A tailBuffer keeps the last bytes of what is written, for a look at it.
type tailBuffer struct{ kept []byte }

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	b.kept = b.kept[max(0, len(b.kept)-maxStderr):]
	return len(p), nil
}
