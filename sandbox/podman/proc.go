package podman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/proctree"
)

// An ownProc is a process of podman's that belongs to one runtime folder.
type ownProc struct {
	proctree.Proc
	args []string
}

// isService tells podman's service from its pause process and from monitors.
func isService(p ownProc) bool {
	return slices.Contains(p.args, "system") && slices.Contains(p.args, "service")
}

// ours lists the processes whose environment names xdg as their runtime folder: podman's service, its pause
// process, the monitors of sandboxes and what those start. Processes inside sandboxes have other environments.
func ours(xdg string) ([]ownProc, error) {
	all, err := proctree.Scan()
	if err != nil {
		return nil, err
	}
	want := []byte("XDG_RUNTIME_DIR=" + xdg)
	var found []ownProc
	for _, p := range all {
		if p.Dead() || p.PID == os.Getpid() {
			continue
		}
		// Other users' processes cannot be read, and those that end meanwhile are none of ours any more.
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if err != nil || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return bytes.Equal(kv, want) }) {
			continue
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err != nil {
			continue
		}
		found = append(found, ownProc{p, strings.Split(string(bytes.TrimRight(args, "\x00")), "\x00")})
	}
	return found, nil
}

// endAll ends the processes of ours(xdg) that match: TERM first, KILL after two seconds, and again for what they
// started meanwhile, until none is left or ctx ends.
func endAll(ctx context.Context, xdg string, match func(ownProc) bool) error {
	began := time.Now()
	for {
		left := 0
		all, err := ours(xdg)
		if err != nil {
			return err
		}
		for _, p := range all {
			if !match(p) {
				continue
			}
			left++
			sig := unix.SIGTERM
			if time.Since(began) > 2*time.Second {
				sig = unix.SIGKILL
			}
			if err := endOne(ctx, p, sig); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d processes in %s do not end: %w", left, xdg, ctx.Err())
		}
	}
}

// endOne signals p and waits for its end, at most a tenth of a second, so that the rest are signalled soon.
func endOne(ctx context.Context, p ownProc, sig unix.Signal) error {
	h, err := openProc(p.PID)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if now, err := proctree.Read(p.PID); err != nil || now.Start != p.Start {
		return nil // another process by now
	}
	if err := h.signal(sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := h.wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// A procHandle is a process that cannot be mistaken for a later one of the same number.
type procHandle struct{ file *os.File }

// openProc gives a handle of a process, or unix.ESRCH.
func openProc(pid int) (*procHandle, error) {
	// Non-blocking, so that Go's poller waits for it and a deadline can end the wait.
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &procHandle{os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (h *procHandle) Close() error { return h.file.Close() }

func (h *procHandle) signal(sig unix.Signal) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	return errors.Join(err, sent)
}

// wait blocks until the process has ended or ctx has.
func (h *procHandle) wait(ctx context.Context) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := h.file.SetReadDeadline(time.Time{}); err != nil { // an earlier wait may have set one
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, perr := unix.Poll(poll, 0)
		return perr == nil && n > 0
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
