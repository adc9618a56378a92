package podman

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hiding names the way in which TestHiding, run as a program of its own, hides what it has.
const hiding = "HANDLER_TEST_HIDING"

const hidden = 64 << 20

// hide starts this test's program again, which hides memory in one way, and gives its process's id once it has.
func hide(t *testing.T, way string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHiding$")
	cmd.Env = append(os.Environ(), hiding+"="+way)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || said != "hidden\n" {
		t.Fatalf("it says %q, %v", said, err)
	}
	return cmd.Process.Pid
}

// TestHiding is the program that hide starts, and no test.
func TestHiding(t *testing.T) {
	way := os.Getenv(hiding)
	switch way {
	case "":
		t.Skip("a program for other tests")
	case "first thread":
		b, err := unix.Mmap(-1, 0, hidden, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		endFirstThread()
	case "table":
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: this thread is not as the others
			done <- ownTable()
			select {}
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("hidden")
	os.Stdin.Read(make([]byte, 1)) // until it is closed
	os.Exit(0)
}

// endFirstThread ends the process's first thread alone, and returns on another when that is so.
func endFirstThread() {
	for tried := make(chan bool); ; {
		go func() {
			runtime.LockOSThread()
			first := unix.Gettid() == os.Getpid()
			tried <- first
			if first {
				unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
			}
			select {}
		}()
		if <-tried {
			break
		}
	}
	for {
		stat, err := os.ReadFile("/proc/self/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(time.Millisecond) // nobody tells of the end of a thread
	}
}

// ownTable gives this thread a table of open files of its own, with a file in memory that no other thread shows.
func ownTable() error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("hidden", 0)
	if err != nil {
		return err
	}
	for range hidden / (1 << 20) {
		if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return nil
}

// A process whose first thread has ended is shown as a zombie with nothing, and has all that it had.
func TestFirstThreadEnded(t *testing.T) {
	pid := hide(t, "first thread")
	v, err := openView(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	all, err := v.usages()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		if u.pid != pid {
			continue
		}
		if got := u.pages * int64(os.Getpagesize()); got < hidden {
			t.Errorf("%d bytes by the cheap number", got)
		}
		if m, err := v.rollup(u.at, make([]byte, 8<<10)); err != nil || m.own < hidden {
			t.Errorf("%+v, %v exactly", m, err)
		}
		return
	}
	t.Error("the process is not seen")
}

// A thread may have open files of its own.
func TestThreadsOwnFiles(t *testing.T) {
	pid := hide(t, "table")
	v, err := openView(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	threads, err := v.threads(pid)
	if err != nil {
		t.Fatal(err)
	}
	v.scanLoose([]usage{{pid: pid, at: fmt.Sprint(pid), threads: len(threads)}})
	if v.loose < hidden {
		t.Errorf("%d bytes are seen", v.loose)
	}
}
