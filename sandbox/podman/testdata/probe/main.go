// Command probe runs inside sandboxes of this package's tests and prints what it could do, a line each. It uses the
// standard library only, so that it builds without the network.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	for _, what := range os.Args[1:] {
		name, arg, _ := strings.Cut(what, "=")
		check, ok := checks[name]
		if !ok {
			fmt.Printf("%s: no such check\n", name)
			os.Exit(2)
		}
		fmt.Printf("%s: %s\n", name, check(arg))
	}
}

var checks = map[string]func(string) string{
	"vsock":        func(string) string { return socket(40, 1, 0) },
	"vsock-high":   func(string) string { return socket(1<<32|40, 1, 0) },
	"alg":          func(string) string { return socket(38, 5, 0) },
	"packet":       func(string) string { return socket(17, 3, 0) },
	"unix":         func(string) string { return socket(1, 1, 0) },
	"inet":         func(string) string { return socket(2, 1, 0) },
	"inet6":        func(string) string { return socket(10, 1, 0) },
	"route":        func(string) string { return socket(16, 3, 0) },
	"audit":        func(string) string { return socket(16, 3, 9) },
	"audit-high":   func(string) string { return socket(16, 3, 1<<32|9) },
	"io_uring":     func(string) string { return call(425, 8, 0, 0) },
	"bpf":          func(string) string { return call(321, 0, 0, 0) },
	"userfaultfd":  func(string) string { return call(323, 1, 0, 0) },
	"perf":         func(string) string { return call(298, 0, 0, 0) },
	"chroot":       func(string) string { return call(161, 0, 0, 0) },
	"x32":          func(string) string { return child("self-x32") },
	"self-x32":     func(string) string { return call(0x40000000+41, 1, 1, 0) },
	"userns":       userns,
	"true":         func(string) string { return "yes" },
	"forks":        forks,
	"read":         read,
	"write":        write,
	"list":         list,
	"env":          func(name string) string { v, ok := os.LookupEnv(name); return fmt.Sprint(ok, " ", v) },
	"mode":         mode,
	"dial":         dial,
	"sleep":        sleep,
	"fill":         fill,
	"exit":         func(code string) string { n := 0; fmt.Sscan(code, &n); os.Exit(n); return "" },
	"ignore-term":  func(string) string { signal.Ignore(syscall.SIGTERM); return "yes" },
	"on-term-exit": onTerm,
}

// socket calls socket with whole registers, not with the ints that the library would cut them to.
func socket(family, kind, protocol uintptr) string {
	return call(syscall.SYS_SOCKET, family, kind, protocol)
}

func call(number, a, b, c uintptr) string {
	_, _, errno := syscall.RawSyscall(number, a, b, c)
	if errno == 0 {
		return "ok"
	}
	return errno.Error()
}

// child runs one check in a process of its own. The kernel may kill it, or the one thread that made the call, which
// leaves the rest of a Go program waiting for it.
func child(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/proc/self/exe", name).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() && len(out) == 0 {
		return "killed"
	}
	return strings.TrimSpace(string(out))
}

// userns makes a user namespace and changes the root in it, as Chromium's sandbox does.
func userns(string) string {
	cmd := exec.Command("/proc/self/exe", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		Chroot:      "/",
	}
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s %v", strings.TrimSpace(string(out)), err)
}

// forks starts processes until it cannot, and says how many there were.
func forks(string) string {
	var started []*exec.Cmd
	for range 2000 {
		cmd := exec.Command("/proc/self/exe", "sleep=60s")
		if err := cmd.Start(); err != nil {
			for _, c := range started {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
			return fmt.Sprintf("%d %v", len(started), errors.Is(err, syscall.EAGAIN))
		}
		started = append(started, cmd)
	}
	return "no end"
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return short(err)
	}
	return strings.ReplaceAll(string(b), "\n", "|")
}

func write(path string) string {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return short(err)
	}
	w := bufio.NewWriter(f)
	w.WriteString("written")
	return fmt.Sprint(errors.Join(w.Flush(), f.Close()))
}

func list(path string) string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return short(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func mode(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return short(err)
	}
	return fmt.Sprintf("%04o %d", info.Mode().Perm(), info.Sys().(*syscall.Stat_t).Uid)
}

// dial connects to a socket, which is all that the other side waits for.
func dial(path string) string {
	c, err := net.Dial("unix", path)
	if err != nil {
		return short(err)
	}
	return fmt.Sprint(c.Close())
}

func short(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func sleep(t string) string {
	d, err := time.ParseDuration(t)
	if err != nil {
		return err.Error()
	}
	time.Sleep(d)
	return "woke"
}

// fill writes that many bytes into a tmpfs and says so by a file, then sleeps.
func fill(arg string) string {
	path, size, _ := strings.Cut(arg, ":")
	n := 0
	fmt.Sscan(size, &n)
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		return short(err)
	}
	return "filled"
}

// onTerm waits for TERM and exits with 7.
func onTerm(ready string) string {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return short(err)
	}
	<-c
	os.Exit(7)
	return ""
}
