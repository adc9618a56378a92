package main

import (
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Browsers and hosted servers stand below their run, with what they use and where their bytes went.
func TestPSParts(t *testing.T) {
	run := types.Run{
		ID: "k3f9", Agent: "web", State: types.StateRunning, Turn: "working", Since: time.Now(), MemoryBytes: 6 << 20, MemoryLimit: types.Limit{Value: 4 << 30, By: "handlerd"},
		Parts: []types.Part{
			{Kind: types.PartBrowser, Name: "playwright", Session: "s1", Since: time.Now(), MemoryBytes: 310 << 20, MemoryLimit: types.Limit{Value: 2 << 30, By: "handlerd"},
				Processes: 12, ProcLimit: types.Limit{Value: 1024, By: "kernel"}, CPUMillis: 1200, Allowed: 3,
				Traffic: []types.HostTraffic{{Host: "shop.example.org", Requests: 3, Sent: 10, Received: 20}}},
			{Kind: types.PartServer, Name: "no\x1btes", Since: time.Now(), MemoryBytes: 40 << 20, MemoryLimit: types.Limit{Value: 1 << 30, By: "handlerd"}},
		},
	}
	var all, one strings.Builder
	if err := psTable(&all, []types.Run{run}); err != nil {
		t.Fatal(err)
	}
	if err := psRun(&one, run); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"└     browser ", "310 MiB of 2 GiB", "12 of 1024", "3 allowed, 0 refused", "server no"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is not in:\n%s", want, all.String())
		}
	}
	for _, want := range []string{"BESIDE IT", "browser  shop.example.org  3", "s1"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("%q is not in:\n%s", want, one.String())
		}
	}
	if strings.Contains(all.String()+one.String(), "\x1b") {
		t.Error("a name of an addon reaches the terminal as it is")
	}
	if got := endedText(run); !strings.HasPrefix(got, "ended k3f9 of web, with its browser, server no") {
		t.Error(got)
	}
}
