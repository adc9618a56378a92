package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestServerLimits(t *testing.T) {
	var l ServerLimits
	for _, kv := range []string{"memory=512MiB", "processes=64", "tmp=1GiB", "home=2MiB", "shm=1MiB", "call_time=30s", "idle=10m", "lifetime=2h", "results=64KiB"} {
		key, value, _ := strings.Cut(kv, "=")
		if err := l.Set(key, value); err != nil {
			t.Error(err)
		}
	}
	got, err := l.Parse()
	want := HostedLimits{Memory: 512 << 20, Processes: 64, Tmp: 1 << 30, Home: 2 << 20, Shm: 1 << 20, Results: 64 << 10, CallTime: 30 * time.Second, Idle: 10 * time.Minute, Lifetime: 2 * time.Hour}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, key := range []string{"memory", "processes", "tmp", "home", "shm", "call_time", "idle", "lifetime", "results"} {
		if err := l.Set(key, ""); err != nil {
			t.Error(err)
		}
	}
	if l != (ServerLimits{}) {
		t.Errorf("%+v", l)
	}
	for kv, want := range map[string]string{
		"memory=1MiB": "limits.memory = \"1MiB\" is too little", "memory=2": "limits.memory: \"2\" is not an amount", "processes=4": "must be 16 to",
		"processes=many": "limits.processes = \"many\" must be a number", "processes=0": "must be a number", "call_time=0s": "limits.call_time = \"0s\" must be a time from 1s to 1h",
		"call_time=2h": "from 1s to 1h", "idle=1s": "from 10s to 168h", "lifetime=none": "from 10s to 168h", "results=1B": "limits.results = \"1B\" must be 1KiB to 4MiB",
		"results=5MiB": "must be 1KiB to 4MiB", "results=x": "limits.results: ", "files=1MiB": "there is no limit \"files\": memory, processes, call_time, home, idle,",
	} {
		key, value, _ := strings.Cut(kv, "=")
		if err := new(ServerLimits).Set(key, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", kv, err, want)
		}
	}
}

func TestBrowserLimits(t *testing.T) {
	l := BrowserLimits{Memory: "3GiB", Processes: 2048, Tmp: "1GiB", Files: "2GiB", Idle: "5m"}
	got, err := l.Parse()
	want := HostedLimits{Memory: 3 << 30, Processes: 2048, Tmp: 1 << 30, Files: 2 << 30, Idle: 5 * time.Minute}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for kv, want := range map[string]string{
		"memory=256MiB": "is too little for a browser: at least 512MiB", "processes=64": "is too few for a browser: at least 256", "files=1kB": "limits.files = \"1kB\" is too little",
		"idle=x": "limits.idle = \"x\" must be a time", "call_time=1s": "there is no limit \"call_time\": memory, processes, files, idle, tmp",
	} {
		key, value, _ := strings.Cut(kv, "=")
		if err := new(BrowserLimits).Set(key, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", kv, err, want)
		}
	}
	for text, want := range map[string]string{
		"[browser.limits]\nmemory = \"1MiB\"\n":         "a.toml: browser.limits.memory = \"1MiB\" is too little",
		"[bindings.x.limits]\nresults = \"1B\"\n":       "a.toml: bindings.x: limits.results",
		"[bindings.x.limits]\nfiles = \"1MiB\"\n":       "a.toml:3:1: ",
		"[browser.limits]\ncall_time = \"1s\"\n":        "a.toml:3:1: ",
		"[browser.limits]\nprocesses = \"a\"\n":         "a.toml:3:13: ",
		"[bindings.x.limits]\nidle = \"9000000h\"\n":    "limits.idle",
		"[bindings.x.limits]\ncall_time = \"-1s\"\n":    "limits.call_time",
		"[bindings.x.limits]\nprocesses = 5000000000\n": "limits.processes",
	} {
		if _, err := Parse("a", "a.toml", []byte("harness = \"demo\"\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
