package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// affinity tries to get processors back that the sandbox was not given.
func affinity([]string) {
	var all unix.CPUSet
	for cpu := range 64 {
		all.Set(cpu)
	}
	result("affinity", unix.SchedSetaffinity(0, &all))
}

// eatMost is where an eater stops by itself, so that a watchdog that fails does not take the machine with it.
const eatMost = 3 << 30

// eat takes memory, or what counts as memory, as fast as it can, in one of these ways, until it is stopped; then it
// holds on to what it has.
//
//	anon          memory of its own
//	shared        shared memory without a name, in several processes
//	tmpfs DIR     files in DIR
//	deleted DIR   files in DIR that are open and have no name any more
//	memfd         files of memfd_create that nobody maps
//	nested        a tmpfs in a mount namespace of its own
//	detached      a tmpfs that is mounted nowhere, held by a descriptor
//	sysv          System V shared memory that nobody has attached
//	disk DIR      a file in DIR, on disk
//	sparse DIR    a file in DIR that is large and has nothing in it; it ends
//	forks         processes
func eat(args []string) {
	ways := map[string]func([]string) error{
		"anon": eatAnon, "shared": eatShared, "tmpfs": eatFiles, "deleted": eatDeleted, "memfd": eatMemfd,
		"nested": eatNested, "nested-inside": nestedInside, "detached": eatDetached, "detached-inside": detachedInside,
		"sysv": eatSysV, "disk": eatFiles, "sparse": eatSparse, "forks": eatForks,
	}
	f := ways[args[0]]
	if f == nil {
		fmt.Fprintf(os.Stderr, "probe: eat knows no %s\n", args[0])
		os.Exit(2)
	}
	fmt.Println("eat: begun")
	if err := f(args[1:]); err != nil {
		fmt.Println("eat: stopped:", err)
	}
	if args[0] != "sparse" && args[0] != "sysv" {
		time.Sleep(time.Minute) // to be killed is what it is for
	}
	fmt.Println("eat: still here")
}

const portion = 8 << 20

func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func eatAnon([]string) error {
	for n := 0; n < eatMost; n += portion {
		b, err := unix.Mmap(-1, 0, portion, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		touch(b)
	}
	return nil
}

// eatShared maps in one process and then in a second one, through a fork that the runtime's exec makes not; so each
// process maps its own, and both add up.
func eatShared(args []string) error {
	if len(args) == 0 {
		cmd := exec.Command(os.Args[0], "eat", "shared", "second")
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	for n := 0; n < eatMost/2; n += portion {
		b, err := unix.Mmap(-1, 0, portion, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		touch(b)
	}
	return nil
}

func fill(f *os.File) error {
	b := make([]byte, portion)
	touch(b)
	for n := 0; n < eatMost; n += portion {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func eatFiles(args []string) error {
	f, err := os.Create(args[0] + "/eaten")
	if err != nil {
		return err
	}
	return fill(f)
}

func eatDeleted(args []string) error {
	f, err := os.Create(args[0] + "/eaten")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	return fill(f)
}

func eatMemfd([]string) error {
	fd, err := unix.MemfdCreate("eaten", 0)
	if err != nil {
		return err
	}
	return fill(os.NewFile(uintptr(fd), "memfd"))
}

// inNamespaces runs this program again in a user and a mount namespace of its own.
func inNamespaces(way string) error {
	cmd := exec.Command(os.Args[0], "eat", way)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}

func eatNested([]string) error { return inNamespaces("nested-inside") }

func nestedInside([]string) error {
	if err := unix.Mount("none", "/tmp", "tmpfs", 0, "size=8g"); err != nil {
		return err
	}
	return eatFiles([]string{"/tmp"})
}

func eatDetached([]string) error { return inNamespaces("detached-inside") }

func detachedInside([]string) error {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(mnt, "eaten", unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return fill(os.NewFile(uintptr(fd), "detached"))
}

func eatSysV([]string) error {
	taken := 0
	for _, size := range []int{portion, 64 << 10} {
		for taken < eatMost {
			id, err := unix.SysvShmGet(0, size, unix.IPC_CREAT|0o600)
			if err != nil {
				fmt.Printf("sysv of %d: refused: %v\n", size, err)
				break
			}
			b, err := unix.SysvShmAttach(id, 0, 0)
			if err != nil {
				return err
			}
			touch(b)
			if err := unix.SysvShmDetach(b); err != nil {
				return err
			}
			taken += size
		}
	}
	fmt.Printf("sysv: %d MiB taken\n", taken>>20)
	return nil
}

func eatSparse(args []string) error {
	f, err := os.Create(args[0] + "/sparse")
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range 20 {
		if err := os.Link(f.Name(), args[0]+"/link"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	if _, err := f.Write(make([]byte, 256<<10)); err != nil {
		return err
	}
	return f.Truncate(100 << 30)
}

// eatForks makes processes that make processes, without a bound of its own: the one thing that a sandbox's limit alone
// is to stop. It ends when a fork has failed often.
func eatForks([]string) error {
	failed := 0
	for failed < 1000 {
		// A raw fork would copy a runtime whose other threads are gone; the shell's copies work on.
		cmd := exec.Command("/bin/sh", "-c", `f() { f | f & }; f; sleep 3`)
		if err := cmd.Start(); err != nil {
			failed++
		}
	}
	return fmt.Errorf("a fork failed %d times", failed)
}
