package main

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/fault"
)

// A process is a handle on a process that is no child of ours, so that its end can be waited for.
type process struct{ fd int }

func openProcess(pid int) (process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return process{}, fault.Wrap(fault.Failed, err, "", "process %d", pid)
	}
	return process{fd}, nil
}

// wait returns when the process has ended, or with an error after limit.
func (p process) wait(ctx context.Context, limit time.Duration) error {
	end := time.Now().Add(limit)
	for time.Now().Before(end) && ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 200)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n == 1 {
			return nil
		}
	}
	return fault.New(fault.Failed, "handler ps", "handlerd has not ended after %v", limit)
}

func (p process) Close() error { return unix.Close(p.fd) }
