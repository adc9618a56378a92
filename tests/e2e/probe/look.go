package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// find looks everywhere for a text that must be nowhere. It is written with a plus sign in it that does not belong to
// it, so that no argv, and no agent's memory of its own commands, holds it.
func find(args []string) {
	text := []byte(strings.ReplaceAll(args[0], "+", ""))
	looked, found := 0, 0
	hit := func(where string) {
		found++
		fmt.Println("FOUND in", where)
	}
	for _, pid := range pids() {
		for _, name := range []string{"environ", "cmdline"} {
			looked += scan(fmt.Sprintf("/proc/%d/%s", pid, name), text, hit)
		}
		if pid != os.Getpid() { // ours holds it by now
			looked += scanMemory(pid, text, hit)
		}
	}
	for _, dir := range args[1:] {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read cannot leak
			if err == nil && d.Type().IsRegular() {
				looked += scan(path, text, hit)
			}
			return nil
		})
	}
	fmt.Printf("find: found %d times, looked at %d files and processes\n", found, looked)
}

func pids() []int {
	entries, _ := os.ReadDir("/proc")
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// scan gives 1 if the file could be looked at.
func scan(path string, text []byte, hit func(string)) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	if contains(f, text) {
		hit(path)
	}
	return 1
}

func contains(r io.Reader, text []byte) bool {
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], text) {
			return true
		}
		if err != nil {
			return false
		}
		tail := min(kept+n, len(text)-1)
		copy(buf, buf[kept+n-tail:kept+n])
		kept = tail
	}
}

// scanMemory reads what it may of another process's memory.
func scanMemory(pid int, text []byte, hit func(string)) int {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], "rw") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseInt(from, 16, 64)
		end, err2 := strconv.ParseInt(to, 16, 64)
		if err1 == nil && err2 == nil && end-start < 256<<20 && contains(io.NewSectionReader(mem, start, end-start), text) {
			hit(fmt.Sprintf("memory of process %d", pid))
			return 1
		}
	}
	return 1
}

// field gives one line of a process's status.
func field(pid int, name string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func status([]string) {
	self := os.Getpid()
	for _, name := range []string{"Uid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"} {
		fmt.Printf("%s: %s\n", name, field(self, name))
	}
	for _, path := range []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/root", "/proc/1/fd", "/dev/mem", "/dev/kmsg", "/sys/kernel/security"} {
		result("read "+path, readable(path))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) > 5 && (f[4] == "/" || f[4] == "/run/handler" || f[4] == "/run/handler-secrets") {
			fmt.Printf("mount %s: %s\n", f[4], f[5])
		}
	}
}

// readable is nil for a file of which a byte, or a folder of which a name, can be read.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_, err = f.Readdirnames(1)
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return err
}

// processes says of every process how it differs from us: a renderer has a user and a PID namespace of its own.
func processes([]string) {
	own := map[string]string{}
	for _, ns := range []string{"user", "pid", "net"} {
		own[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	for _, pid := range pids() {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(string(argv), "\x00")
		kind := filepath.Base(words[0])
		if strings.Contains(words[0], " ") { // browsers write over their argv, with blanks between
			words = strings.Fields(words[0])
			kind = filepath.Base(words[0])
		}
		for _, w := range words {
			if t, ok := strings.CutPrefix(w, "--type="); ok {
				kind += " " + t
			}
			if strings.Contains(w, "no-sandbox") || strings.Contains(w, "disable-setuid-sandbox") {
				kind += " " + w
			}
		}
		fmt.Printf("process %q:", kind)
		for _, ns := range []string{"user", "pid", "net"} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			switch {
			case err != nil:
				fmt.Printf(" %s=unreadable", ns)
			case link == own[ns]:
				fmt.Printf(" %s=ours", ns)
			default:
				fmt.Printf(" %s=other", ns)
			}
		}
		fmt.Printf(" CapEff=%s CapPrm=%s Seccomp=%s NoNewPrivs=%s\n", field(pid, "CapEff"), field(pid, "CapPrm"), field(pid, "Seccomp"), field(pid, "NoNewPrivs"))
	}
}
