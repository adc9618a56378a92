package sessions

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/doctor"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
)

// TestBoxes: a run's browsers and servers are shown with what they use, count when the machine has no memory, and their
// bytes are in the log and the audit when they are gone.
func TestBoxes(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.driver.Start(t.Context(), sandbox.Spec{
		Name: "handler-box", Image: sandbox.ToolboxImage(""), Command: []string{"/bin/sleep", "600"}, Dir: "/",
		Limits: sandbox.Limits{Memory: sandbox.Limit{Value: 1 << 30}, Processes: sandbox.Limit{Value: 64}},
	})
	if err != nil {
		t.Fatal(err)
	}
	limits := sandbox.Limits{Memory: sandbox.Limit{Value: 1 << 30, Watched: true}, Processes: sandbox.Limit{Value: 64}}
	about := mcpbox.About{Sandbox: id, Run: r.ID(), Session: "s1", Part: sandbox.PartServer, What: "server notes", Addon: "notes", Since: time.Now(), Limits: limits,
		Traffic: func() egress.Snapshot {
			return egress.Snapshot{Allowed: 3, Refused: 1, Hosts: []egress.HostCount{{Host: "api.example.org", Requests: 3, Sent: 10, Received: 20}}}
		}}
	gone := w.m.BoxLives(about)
	browser := about
	browser.Sandbox, browser.Part, browser.What, browser.Session = "none", sandbox.PartBrowser, "browser", ""
	browserGone := w.m.BoxLives(browser)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		w.m.WatchBox(ctx, id, limits, func(err error) { t.Error(err) })
	}()
	for w.m.Census().Memory == 0 {
		select {
		case <-watched:
			t.Fatal("the watch ended")
		case <-time.After(time.Millisecond):
		}
	}
	s, err := w.m.Find(t.Context(), r.ID())
	if err != nil || len(s.Parts) != 2 {
		t.Fatalf("%+v %v", s.Parts, err)
	}
	p := s.Parts[0]
	if p.Kind != types.PartServer || p.Name != "notes" || p.Session != "s1" || p.Processes < 1 || p.MemoryBytes <= 0 || p.MemoryLimit != (types.Limit{Value: 1 << 30, By: byHandlerd}) ||
		p.ProcLimit != (types.Limit{Value: 64, Enforced: true, By: byKernel}) || p.Allowed != 3 || p.Traffic[0].Received != 20 {
		t.Errorf("%+v", p)
	}
	if p := s.Parts[1]; p.Kind != types.PartBrowser || p.MemoryBytes != 0 { // one that is just ending
		t.Errorf("%+v", p)
	}
	c := w.m.Census()
	c.Memory = 0
	if c != (doctor.Live{Runs: 2, Browsers: 1, Servers: 1}) {
		t.Errorf("%+v", c)
	}
	w.m.mu.Lock()
	other.memoryUsed.Store(500 << 20)
	r.memoryUsed.Store(400 << 20)
	w.m.boxes["none"].used.Store(200 << 20)
	w.m.mu.Unlock()
	if !w.m.biggest(r) || w.m.biggest(other) {
		t.Error("the memory of the browser does not count")
	}
	cancel()
	<-watched
	if err := w.driver.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	gone()
	browserGone()
	if s, err := w.m.Find(t.Context(), r.ID()); err != nil || len(s.Parts) != 0 {
		t.Errorf("%+v %v", s.Parts, err)
	}
	var said []string
	if err := w.m.Log(t.Context(), r.ID(), false, func(l types.LogLine) error { said = append(said, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "network of the server notes: api.example.org 3 connections, 10 bytes out, 20 bytes in") {
		t.Error(all)
	}
	r.Abort()
	other.Abort()
	w.nothingLeft(t)
}

func TestWhatWasLeft(t *testing.T) {
	labelled := func(part, run string) sandbox.Sandbox {
		return sandbox.Sandbox{Labels: map[string]string{sandbox.LabelPart: part, sandbox.LabelRun: run}}
	}
	for want, s := range map[string]sandbox.Sandbox{
		"the sandbox of run k3f9": labelled("", "k3f9"), "the browser of run k3f9": labelled("browser", "k3f9"), "the server of run k3f9": labelled("server", "k3f9"),
		"the sandbox": labelled("", ""), "a part of run k3f9": labelled("something", "k3f9"),
	} {
		if got := whatItWas(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	left := []sandbox.Sandbox{labelled("", "a"), labelled("", "b"), labelled("browser", "a"), labelled("server", "a")}
	if got := sweptText(left); got != "2 of runs, 1 of browsers, 1 of hosted servers" {
		t.Error(got)
	}
}
