package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A machine is what the numbers were measured on.
type machine struct {
	Date       string `json:"date"`
	Commit     string `json:"version"`
	System     string `json:"system"`
	Kernel     string `json:"kernel"`
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	MemoryGB   int    `json:"memoryGB"`
	Podman     string `json:"podman"`
	Runtime    string `json:"runtime"`
	Cgroup     string `json:"cgroup"`
	Go         string `json:"go"`
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

func describe() machine {
	m := machine{
		Date: time.Now().Format("2006-01-02 15:04"), Cores: runtime.NumCPU(), Go: runtime.Version(), LoadBefore: load(),
		Kernel: strings.TrimSpace(readString("/proc/sys/kernel/osrelease")), Podman: versionOf("podman"), Runtime: "none",
		System: field(readString("/etc/os-release"), "PRETTY_NAME="), Processor: field(readString("/proc/cpuinfo"), "model name"),
		Cgroup: "v1", Commit: os.Getenv("VERSION"),
	}
	kb, _ := strconv.Atoi(strings.TrimSuffix(field(readString("/proc/meminfo"), "MemTotal:"), " kB"))
	m.MemoryGB = kb >> 20
	for _, name := range []string{"crun", "runc"} {
		if v := versionOf(name); v != "" {
			m.Runtime = v
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroup = "v2"
	}
	return m
}

// String is the machine in one sentence.
func (m machine) String() string {
	version := ""
	if m.Commit != "" {
		version = ", version " + m.Commit
	}
	return fmt.Sprintf("Measured %s%s on %s, Linux %s, %d cores (%s), %d GB of memory, %s, %s, cgroup %s, %s. "+
		"Load of the machine before: %s, after: %s.",
		m.Date, version, m.System, m.Kernel, m.Cores, m.Processor, m.MemoryGB, m.Podman, m.Runtime, m.Cgroup, m.Go, m.LoadBefore, m.LoadAfter)
}

// load gives the machine's load of the last minute.
func load() string {
	first, _, _ := strings.Cut(readString("/proc/loadavg"), " ")
	return first
}

func readString(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// field gives what follows name on its line, without quotes, colons and spaces around.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Trim(rest, " \t\n\":")
		}
	}
	return ""
}

// versionOf gives the first line of what a program says of its version; "" where there is no such program.
func versionOf(name string) string {
	out, err := exec.Command(name, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Replace(strings.TrimSpace(line), " version ", " ", 1)
}
