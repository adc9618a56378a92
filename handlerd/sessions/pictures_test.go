package sessions

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/fake"
)

// withStore gives a world's manager a store.
func withStore(t *testing.T, w *world, opts artifacts.Options) *artifacts.Store {
	t.Helper()
	var s *artifacts.Store
	opts.Changed = func(a artifacts.Artifact, removed bool) { w.m.ArtifactChanged(s.Describe(a), removed) }
	s, err := artifacts.Open(t.Context(), filepath.Join(t.TempDir(), "artifacts"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w.m.opts.Artifacts, w.m.opts.Principal = s, artifacts.Principal(1000)
	return s
}

func gifOf(n int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "GIF89a %d", n))
}

// pictured is what the relay tells of an update.
func pictured(session, tool, fields string) acp.Event {
	line := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":{"sessionUpdate":"tool_call_update","toolCallId":"` + tool + `",` + fields + `}}}`
	return acp.Event{Kind: acp.Pictured, Session: session, Tool: tool, Line: []byte(line)}
}

func content(pictures ...string) string {
	var parts []string
	for _, p := range pictures {
		parts = append(parts, `{"type":"content","content":{"type":"image","data":"`+p+`"}}`)
	}
	return `"content":[` + strings.Join(parts, ",") + `]`
}

// TestPictures: what an agent shows is kept once, under the tool's name, and the run's log tells of it; a session's go
// with it.
func TestPictures(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	s := withStore(t, w, artifacts.Options{PerRun: 4})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	r.observe(acp.Event{Kind: acp.ToolCalled, Session: "s1", Tool: "c1", Name: "mcp__playwright__browser_take_screenshot"})
	r.observe(pictured("s1", "c1", content(gifOf(1), gifOf(1))+`,"rawOutput":{"content":[{"type":"image","data":"`+gifOf(1)+`"}]},"_meta":{"x":[{"type":"image","data":"`+gifOf(7)+`"}]}`))
	r.observe(pictured("s1", "c1", content(gifOf(1))))
	r.observe(pictured("s2", "c2", `"title":"../../\u001b[31m", `+content(gifOf(2))))
	r.observe(pictured("s2", "c3", content("PHN2Zy8+", "%%%")))
	// What a tool that handlerd serves has kept by itself is not kept again.
	shot, _ := base64.StdEncoding.DecodeString(gifOf(3))
	if _, err := s.Add(t.Context(), artifacts.Meta{Owner: w.m.opts.Principal, Run: r.ID(), Name: "page.gif"}, strings.NewReader(string(shot))); err != nil {
		t.Fatal(err)
	}
	r.observe(pictured("s1", "c1", content(gifOf(3))))
	w.m.SettleArtifacts(t.Context(), "")
	names := func() (names []string) {
		all, err := s.List(t.Context(), w.m.opts.Principal, artifacts.Filter{Run: r.ID()})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			names = append(names, a.Session+" "+a.Agent+" "+a.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"  page.gif", "s1 web browser_take_screenshot.gif", "s2 web picture.gif"}, sorted(names())); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}

	// Deleting a session deletes what it made, in order with what was shown before.
	r.observe(pictured("s1", "c1", content(gifOf(4))))
	r.observe(acp.Event{Kind: acp.SessionClosed, Session: "s1", Method: "session/delete"})
	r.observe(acp.Event{Kind: acp.SessionClosed, Session: "s2", Method: "session/close"})
	w.m.SettleArtifacts(t.Context(), r.ID())
	if diff := cmp.Diff([]string{"  page.gif", "s2 web picture.gif"}, sorted(names())); diff != "" {
		t.Errorf("after the session's end (-want +got):\n%s", diff)
	}

	// A full store is told of once, with what to do.
	for i := range 5 {
		r.observe(pictured("s3", "c9", content(gifOf(100+i))))
	}
	r.Abort() // keeps what was shown before
	kept, full, removed := 0, 0, 0
	err = w.m.Log(t.Context(), r.ID(), false, func(l types.LogLine) error {
		switch {
		case l.From == types.FromArtifact && l.Removed:
			removed++
		case l.From == types.FromArtifact:
			kept++
			if l.Artifact == nil || l.Artifact.Run != r.ID() || l.Artifact.SHA256 == "" || !strings.Contains(l.Text, "handler artifacts get "+l.Artifact.ID[:8]) {
				t.Errorf("got %+v", l)
			}
			if _, err := os.Stat(l.Artifact.Path); err != nil && l.Artifact.Session != "s1" {
				t.Error(err)
			}
		case l.From == types.FromNotice && strings.Contains(l.Text, "no more than 4 artifacts of run "+r.ID()):
			full++
			if !strings.Contains(l.Text, "handler artifacts rm ID") {
				t.Errorf("got %s", l.Text)
			}
		}
		return nil
	})
	if err != nil || kept != 6 || removed != 2 || full != 1 {
		t.Errorf("%v: %d kept, %d removed, %d times full", err, kept, removed, full)
	}
	if w.m.pictures.Load() != 0 {
		t.Errorf("%d bytes still count as waiting", w.m.pictures.Load())
	}
	// A run of the same id would have them: it is not given again.
	if !w.m.hasArtifacts(r.ID()) || w.m.hasArtifacts("zzzz") {
		t.Error("a run's id is not known by its artifacts")
	}
}

func sorted(s []string) []string {
	out := append([]string{}, s...)
	for i := range out {
		for j := i; j > 0 && out[j] < out[j-1]; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

// TestPicturesFlood: an agent that shows more than can be kept costs a bounded amount of memory, and nobody waits for it.
func TestPicturesFlood(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	withStore(t, w, artifacts.Options{})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	stuck := make(chan struct{})
	k := r.pictures
	k.mu.Lock()
	k.working = true // nobody works the queue off yet
	k.mu.Unlock()
	huge := pictured("s", "c", content(strings.Repeat("A", 40<<20)))
	for range 3 {
		r.observe(huge)
	}
	k.mu.Lock()
	waiting := k.waiting
	k.mu.Unlock()
	if waiting > MaxPictureQueue || waiting == 0 || w.m.pictures.Load() != int64(waiting) {
		t.Errorf("%d bytes wait", waiting)
	}
	go func() { defer close(stuck); k.work() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	k.settle(ctx)
	<-stuck
	if w.m.pictures.Load() != 0 {
		t.Errorf("%d bytes still count as waiting", w.m.pictures.Load())
	}
}

// TestPicturesBroken: a store that cannot be used keeps no run from starting and ending; the person is told.
func TestPicturesBroken(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	dir := filepath.Join(t.TempDir(), "artifacts")
	write(t, filepath.Join(dir, "index.db"), strings.Repeat("no database. ", 1000))
	s := artifacts.New(dir, artifacts.Options{})
	defer s.Close()
	w.m.opts.Artifacts, w.m.opts.Principal = s, artifacts.Principal(1000)
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	r.observe(pictured("s", "c", content(gifOf(1))))
	r.observe(pictured("s", "c", content(gifOf(2))))
	r.Abort()
	told := 0
	err = w.m.Log(t.Context(), r.ID(), false, func(l types.LogLine) error {
		if l.From == types.FromNotice && strings.Contains(l.Text, "index.db is damaged") && strings.Contains(l.Text, "mv "+dir) {
			told++
		}
		return nil
	})
	if err != nil || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
}

func TestToolFile(t *testing.T) {
	for in, want := range map[string]string{
		"mcp__playwright__browser_take_screenshot": "browser_take_screenshot", "mcp.mock.ping": "ping", "playwright: shot": "shot",
		"Read ../../etc/passwd": "read-etc-passwd", "": "picture", "\x1b[31m": "31m", "É": "picture", strings.Repeat("x", 99): strings.Repeat("x", 40),
	} {
		if got := toolFile(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

// TestSaveTarget: a copy goes where an agent may write and nowhere else (I), and never where the person's own tools look
// for orders (A.9).
func TestSaveTarget(t *testing.T) {
	w := newWorld(t, fake.Options{}, nil)
	other, inner, ro := filepath.Join(filepath.Dir(w.scope), "other"), filepath.Join(w.scope, "vendor"), filepath.Join(filepath.Dir(w.scope), "ro")
	for _, dir := range []string{other, inner, ro, filepath.Join(w.scope, "docs"), filepath.Join(w.scope, ".vscode")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	alias := filepath.Join(filepath.Dir(w.scope), "alias")
	for _, link := range [][2]string{{w.scope, alias}, {other, filepath.Join(w.scope, "out")}} {
		if err := os.Symlink(link[0], link[1]); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(filepath.Dir(filepath.Dir(w.scope)), "config", "agents")
	agent := func(name string, scopes ...string) {
		text := "harness = \"script\"\nbindings = {}\n"
		for _, s := range scopes {
			path, mode, _ := strings.Cut(s, "|")
			text += fmt.Sprintf("[[scopes]]\npath = %q\nmode = %q\n", path, mode)
		}
		write(t, filepath.Join(config, name+".toml"), text)
	}
	agent("own")
	agent("one", w.scope+"|rw", inner+"|ro")
	agent("two", w.scope+"|rw", other+"|rw")
	agent("none", ro+"|ro")
	agent("gone", filepath.Join(w.scope, "missing")+"|rw")
	r, err := w.m.Start(t.Context(), types.RunRequest{Agent: "one", Cwd: w.scope})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	for _, test := range []struct {
		dest types.Destination
		want string // "SCOPE FOLDER", or "!" kind and a part of the error
	}{
		{types.Destination{Agent: "own", Cwd: w.scope}, w.scope + " "},
		{types.Destination{Agent: "one", Cwd: other}, w.scope + " "},
		{types.Destination{Run: r.ID()}, w.scope + " "},
		{types.Destination{Run: r.ID()[:3], Folder: "docs"}, w.scope + " docs"},
		{types.Destination{Agent: "one", Cwd: other, Folder: "docs/../docs"}, w.scope + " docs"},
		{types.Destination{Agent: "one", Cwd: other, Folder: filepath.Join(w.scope, "docs")}, w.scope + " docs"},
		{types.Destination{Agent: "one", Cwd: other, Folder: filepath.Join(alias, "docs")}, w.scope + " docs"},
		{types.Destination{Agent: "two", Cwd: w.scope, Folder: other}, other + " "},
		{types.Destination{Agent: "one", Cwd: other, Folder: "out"}, w.scope + " out"}, // the store refuses the symlink
		{types.Destination{Agent: "two", Cwd: w.scope}, "!2 several scopes"},
		{types.Destination{Agent: "one", Cwd: other, Folder: "vendor"}, "!3 lies in no scope that is rw"},
		{types.Destination{Agent: "one", Cwd: other, Folder: "vendor/deep"}, "!3 lies in no scope that is rw"},
		{types.Destination{Agent: "one", Cwd: other, Folder: ".."}, "!3 lies in no scope that is rw"},
		{types.Destination{Agent: "one", Cwd: other, Folder: other}, "!3 lies in no scope that is rw"},
		{types.Destination{Agent: "one", Cwd: other, Folder: "/etc"}, "!3 lies in no scope that is rw"},
		{types.Destination{Agent: "none", Cwd: w.scope}, "!3 no scope of it is rw"},
		{types.Destination{Agent: "gone", Cwd: w.scope}, "!3 does not exist"},
		{types.Destination{Agent: "own", Cwd: filepath.Dir(w.scope)}, "!3 is your home folder"},
		{types.Destination{Agent: "own"}, "!2 not given as an absolute path"},
		{types.Destination{}, "!2 an agent or a live run"},
		{types.Destination{Agent: "one", Run: r.ID()}, "!2 an agent or a live run"},
		{types.Destination{Run: "zzzz"}, "!1 there is no run"},
		{types.Destination{Agent: "nobody", Cwd: w.scope}, "!1 nobody"},
	} {
		req, err := w.m.SaveTarget(t.Context(), test.dest)
		if part, fails := strings.CutPrefix(test.want, "!"); fails {
			code, text, _ := strings.Cut(part, " ")
			var f *fault.Fault
			if !errors.As(err, &f) || fmt.Sprint(f.Kind.ExitCode()) != code || !strings.Contains(f.Text, text) {
				t.Errorf("%+v: got %v", test.dest, err)
			}
			continue
		}
		if err != nil || req.Scope+" "+req.Folder != test.want {
			t.Errorf("%+v: %q %q, %v", test.dest, req.Scope, req.Folder, err)
			continue
		}
		for name, refused := range map[string]bool{"a.png": false, "lefthook.yml": true, "LEFTHOOK.yml": true, ".vscode/tasks.json": true, "x/.git/hooks/post-commit": true, "mise.toml": true} {
			if err := req.Refuse(filepath.Join(req.Scope, name)); (err != nil) != refused {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestPromptPictures: a picture of a person's message that is too large for its event is kept, once, and goes with the session;
// a small one stays in the event.
func TestPromptPictures(t *testing.T) {
	r, _, _ := opened(t, types.ClientPage)
	w := &world{m: r.m}
	s := withStore(t, w, artifacts.Options{})
	large := base64.StdEncoding.EncodeToString(append([]byte("GIF89a"), make([]byte, 8<<10)...))
	for _, picture := range []string{large, gifOf(1), large} {
		say(r.recorder, acp.Client, acp.Request, "session/prompt", "s", "2", `{"sessionId":"s","prompt":[{"type":"text","text":"look"},{"type":"image","mimeType":"image/gif","data":"`+picture+`"}]}`)
		say(r.recorder, acp.Agent, acp.Response, "session/prompt", "s", "2", `{"stopReason":"end_turn"}`)
	}
	r.m.SettleArtifacts(t.Context(), "")
	list := func() []artifacts.Artifact {
		all, err := s.List(t.Context(), w.m.opts.Principal, artifacts.Filter{Run: r.ID()})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := list(); len(all) != 1 || all[0].Session != "s" || all[0].Source != promptName || all[0].Name != "your-message.gif" || all[0].Bytes != 8<<10+6 {
		t.Errorf("kept: %+v", all)
	}
	r.observe(acp.Event{Kind: acp.SessionClosed, Session: "s", Method: "session/delete"})
	r.m.SettleArtifacts(t.Context(), "")
	if all := list(); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}
