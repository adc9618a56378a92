package main

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// files makes what a sandbox's process could put in the way of who opens files from outside, and waits.
func (p probe) files(command, dir string) error {
	err := errors.Join(
		os.MkdirAll(dir+"/sub/deep", 0o700),
		os.WriteFile(dir+"/plain", []byte("plain"), 0o600),
		os.WriteFile(dir+"/sub/deep/file", []byte("deep"), 0o644),
		os.Link(dir+"/plain", dir+"/hard"),
		os.Symlink("plain", dir+"/link"),
		os.Symlink("sub", dir+"/dirlink"),
		os.Symlink("/", dir+"/root"),
		os.Symlink("/proc/self/root", dir+"/magic"),
		unix.Mkfifo(dir+"/pipe", 0o600),
		os.WriteFile(dir+"/leased", []byte("leased"), 0o600),
	)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		return err
	}
	defer l.Close()
	if command == "juggle" {
		return p.juggle(dir)
	}
	// A lease makes whoever opens the file wait, unless they ask not to.
	f, err := os.OpenFile(dir+"/leased", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := p.out.Encode(true); err != nil {
		return err
	}
	time.Sleep(time.Hour) // waits for nothing: the suite ends it
	return nil
}

// juggle never ends: the suite ends it.
func (p probe) juggle(dir string) error {
	if err := os.Symlink("/etc", dir+"/other"); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/sub/passwd", []byte("plain"), 0o600); err != nil {
		return err
	}
	if err := p.out.Encode(true); err != nil {
		return err
	}
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, dir+"/sub", unix.AT_FDCWD, dir+"/other", unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
}
