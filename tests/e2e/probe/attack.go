package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func write(paths []string) {
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err == nil {
			_, err = f.WriteString("x")
			f.Close()
		}
		result("write "+path, err)
	}
}

// syscalls tries what a strict sandbox refuses. An attempt that the kernel would refuse in its own way is made so that
// the two can be told apart: a filter answers EPERM or ENOSYS.
func syscalls([]string) {
	runtime.LockOSThread()
	raw := func(nr uintptr, a ...uintptr) error {
		var args [6]uintptr
		copy(args[:], a)
		if _, _, errno := syscall.Syscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
			return errno
		}
		return nil
	}
	var attr [128]byte
	p := uintptr(unsafe.Pointer(&attr))
	result("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	result("umount /run/handler", unix.Unmount("/run/handler", unix.MNT_DETACH))
	result("remount / rw", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	result("remount /run/handler rw", unix.Mount("", "/run/handler", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	result("mknod", unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))))
	result("setuid 0", unix.Setuid(0))
	result("sethostname", unix.Sethostname([]byte("x")))
	result("io_uring_setup", raw(unix.SYS_IO_URING_SETUP, 1, p))
	result("bpf", raw(unix.SYS_BPF, 0, p, 128))
	result("userfaultfd", raw(unix.SYS_USERFAULTFD, unix.O_CLOEXEC))
	result("perf_event_open", raw(unix.SYS_PERF_EVENT_OPEN, p, 0, ^uintptr(0), ^uintptr(0)))
	result("init_module", raw(unix.SYS_INIT_MODULE, p, 0, p))
	result("kexec_load", raw(unix.SYS_KEXEC_LOAD))
	result("ptrace 1", unix.PtraceAttach(1))
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
	}
	result("vsock", err)
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err == nil {
		unix.Close(fd)
	}
	result("raw socket", err)
	for _, ns := range []string{"user", "mnt", "net"} {
		fd, err := unix.Open("/proc/1/ns/"+ns, unix.O_RDONLY, 0)
		if err == nil {
			err = unix.Setns(fd, 0)
			unix.Close(fd)
		}
		result("setns "+ns+" of 1", err)
	}
	result("chroot without a namespace", unix.Chroot("/tmp"))
	result("chroot out, in a user namespace", chrootOut())
}

// chrootOut makes a user namespace, as the browser's own sandbox does, and breaks out of a chroot in it. That must lead
// to this sandbox's own root and not to the host's.
func chrootOut() error {
	cmd := exec.Command(os.Args[0], "chroot-out")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s", out)
	return err
}

// insideChroot is the other half: a descriptor that was open before chroot leads out of it again.
func insideChroot([]string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("chroot-out:", err)
			os.Exit(1)
		}
	}
	fail(os.MkdirAll("/tmp/j", 0o700))
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	fail(err)
	fail(unix.Chroot("/tmp/j"))
	fail(unix.Fchdir(fd))
	for range 64 {
		fail(unix.Chdir(".."))
	}
	fail(unix.Chroot("."))
	for _, path := range []string{"/run/handler/egress.sock", "/etc/shadow", "/proc/1/root/etc/shadow", "/home/agent"} {
		_, err := os.Stat(path)
		fmt.Printf("chroot-out: %s: %v\n", path, err)
	}
}

func killAll([]string) {
	fmt.Println("kill-all: now")
	_ = unix.Kill(1, unix.SIGKILL)
	_ = unix.Kill(-1, unix.SIGKILL)
	for _, pid := range pids() {
		if pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	// Whoever is left of us ignores what it can.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	time.Sleep(time.Minute) // to be killed is what it is for
}

// stubborn starts itself anew in a session of its own and ends; the copy closes nothing and ignores all it can.
func stubborn(args []string) {
	if len(args) > 0 {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		time.Sleep(time.Hour) // to be killed is what it is for
		return
	}
	cmd := exec.Command(os.Args[0], "stubborn", "copy")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	result("stubborn", cmd.Start())
}

// loop forks faster than one can count, within bounds that a test machine bears.
func loop([]string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	places := make(chan struct{}, 200)
	fmt.Println("loop: begun")
	for {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			_ = exec.Command("/bin/sleep", "0.05").Run() // its failure is the limit that it met
		}()
	}
}
