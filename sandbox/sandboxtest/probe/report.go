package main

import (
	"os"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

func report() facts.Report {
	r := facts.Report{UID: os.Getuid(), GID: os.Getgid(), Env: map[string]string{}, Status: map[string]string{}, NS: map[string]string{}}
	r.Dir, _ = os.Getwd()
	r.Host, _ = os.Hostname()
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		r.Env[k] = v
	}
	for _, line := range lines("/proc/self/status") {
		k, v, _ := strings.Cut(line, ":")
		r.Status[k] = strings.TrimSpace(v)
	}
	for _, ns := range []string{"user", "pid", "ipc", "uts", "net", "mnt", "cgroup"} {
		r.NS[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	for _, line := range lines("/proc/net/dev") {
		if name, _, ok := strings.Cut(line, ":"); ok {
			r.NetDev = append(r.NetDev, strings.TrimSpace(name))
		}
	}
	for _, line := range lines("/proc/self/mountinfo") { // proc(5): … root target options … - type source super
		left, right, _ := strings.Cut(line, " - ")
		l, rt := strings.Fields(left), strings.Fields(right)
		if len(l) > 5 && len(rt) > 0 {
			r.Mounts = append(r.Mounts, facts.Mount{Target: l[4], Options: strings.Split(l[5], ","), FS: rt[0]})
		}
	}
	var limit unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit) == nil {
		r.NoFile = [2]uint64{limit.Cur, limit.Max}
	}
	return r
}

func lines(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func files(paths []string) []facts.File {
	var out []facts.File
	for _, path := range paths {
		f := facts.File{Path: path}
		info, err := os.Stat(path)
		if err != nil {
			f.Err = err.Error()
			out = append(out, f)
			continue
		}
		f.Mode = uint32(info.Mode().Perm())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			f.UID = int(st.Uid)
		}
		var fs unix.Statfs_t
		f.Tmpfs = unix.Statfs(path, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
		if info.IsDir() {
			entries, _ := os.ReadDir(path)
			for _, e := range entries {
				f.Names = append(f.Names, e.Name())
			}
			sort.Strings(f.Names)
		} else if b, err := os.ReadFile(path); err != nil {
			f.Err = err.Error()
		} else {
			f.Content = string(b)
		}
		out = append(out, f)
	}
	return out
}
