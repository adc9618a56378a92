package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

const tryTime = 3 * time.Second // for an attempt that may hang

func tryAll(ops []string) []facts.Outcome {
	var out []facts.Outcome
	for _, op := range ops {
		name, arg, _ := strings.Cut(op, "=")
		text, err := try(name, arg)
		o := facts.Outcome{OK: err == nil, Text: text}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			o.Errno = unix.ErrnoName(errno)
		}
		if err != nil {
			o.Text = err.Error()
		}
		out = append(out, o)
	}
	return out
}

func try(name, arg string) (string, error) {
	switch name {
	case "create", "write", "read", "mkdir", "symlink", "fill", "exec", "remove":
		return tryFile(name, arg)
	case "tcp", "udp", "unix":
		c, err := net.DialTimeout(name, arg, tryTime)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return "", err
	case "dns":
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupHost(ctx, arg)
		return strings.Join(addrs, " "), err
	case "chroot-in-userns":
		return "", chrootInUserns()
	case "vsock":
		fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return "", err
	case "mount":
		return "", unix.Mount("none", arg, "tmpfs", 0, "")
	case "size":
		var fs unix.Statfs_t
		err := unix.Statfs(arg, &fs)
		return strconv.FormatInt(int64(fs.Blocks)*fs.Bsize, 10), err
	}
	return "", trySyscall(name)
}

func tryFile(name, arg string) (string, error) {
	path, value, _ := strings.Cut(arg, ",")
	switch name {
	case "create":
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(value)
		return "", errors.Join(err, f.Close())
	case "write":
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(value)
		return "", errors.Join(err, f.Close())
	case "read":
		b, err := os.ReadFile(path)
		return string(b), err
	case "mkdir":
		return "", os.Mkdir(path, 0o700)
	case "symlink":
		return "", os.Symlink("/", path)
	case "remove":
		return "", os.Remove(path)
	case "fill":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return "", err
		}
		f, err := os.Create(path)
		if err != nil {
			return "", err
		}
		defer os.Remove(path)
		_, err = io.CopyN(f, zeros{}, n)
		return "", errors.Join(err, f.Close())
	default: // exec: a copy of ourselves
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(path, self, 0o700); err != nil {
			return "", err
		}
		defer os.Remove(path)
		return "", exec.Command(path, "exit", "0").Run()
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// chrootInUserns does what Chromium's own sandbox needs: a user namespace, and chroot within it.
func chrootInUserns() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "exit", "0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Chroot:      "/",
	}
	return cmd.Run()
}

// trySyscall makes calls with arguments that a kernel which is reached refuses in its own way (EFAULT, EINVAL), so
// that a filter's EPERM or ENOSYS can be told from it.
func trySyscall(name string) error {
	var attr [128]byte
	var r uintptr
	var errno syscall.Errno
	switch name {
	case "io_uring_setup":
		r, _, errno = syscall.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	case "bpf":
		r, _, errno = syscall.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), 0)
	case "userfaultfd":
		r, _, errno = syscall.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	case "perf_event_open":
		r, _, errno = syscall.Syscall6(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&attr)), 0, ^uintptr(0), ^uintptr(0), 0, 0)
	case "sched_setaffinity":
		var all unix.CPUSet
		for cpu := range 64 {
			all.Set(cpu)
		}
		return unix.SchedSetaffinity(0, &all)
	default:
		return fmt.Errorf("unknown attempt %s", name)
	}
	if errno != 0 {
		return errno
	}
	unix.Close(int(r))
	return nil
}
