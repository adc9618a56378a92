package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/fake"
)

func TestLimiter(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLimiter(func() time.Time { return now })
	take := func(n int) (written, told int) {
		for range n {
			ok, missed, _ := l.take()
			if ok {
				written++
			}
			told += missed
		}
		return written, told
	}
	for _, step := range []struct {
		pass          time.Duration
		n             int
		written, told int
	}{
		{0, 300, 200, 0},
		{time.Second, 100, 5, 0},
		{59 * time.Second, 1, 1, 195}, // a minute after the first miss
		{0, 250, 199, 0},
		{-time.Hour, 10, 0, 0}, // a clock that was set back gives nothing
		{time.Hour, 1, 0, 0},
		{61 * time.Second, 200, 200, 62},
		{0, 3, 0, 0},
	} {
		now = now.Add(step.pass)
		if written, told := take(step.n); written != step.written || told != step.told {
			t.Errorf("step %+v: %d written, %d told", step, written, told)
		}
	}
	if first, second := l.rest(), l.rest(); first != 3 || second != 0 {
		t.Errorf("the rest is %d and then %d", first, second)
	}
}

// TestLimiterQuota: a run that goes on for long, or floods slowly, has its end too, which is told once.
func TestLimiterQuota(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLimiter(func() time.Time { return now })
	written, told, lasts := 0, 0, 0
	for range verdictsRun + 500 {
		now = now.Add(time.Second / verdictRate)
		ok, missed, last := l.take()
		if ok {
			written++
		}
		if last {
			lasts++
		}
		told += missed
	}
	if written != verdictsRun || told != 0 || lasts != 1 || l.rest() != 500 {
		t.Errorf("%d written, %d told, %d times the last", written, told, lasts)
	}
}

// TestFlood sends what an agent would to push all else out of the audit log and the run's log.
func TestFlood(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r.verdicts, r.calls = newLimiter(func() time.Time { return now }), newLimiter(func() time.Time { return now })
	for range 3000 {
		if r.admitCall() == nil {
			if err := r.recordCall(gateway.Record{Server: "playwright", Tool: "browser_close", Failed: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	verdict := policy.Verdict{Action: policy.Refuse, Rule: "P9", Reason: strings.Repeat("r", 5000)}
	for i := range 3000 {
		r.observe(acp.Event{Kind: acp.Judged, Method: strings.Repeat("é", 1500), Verdict: verdict})
		r.auditEgress(egress.Record{Verdict: verdict, Host: fmt.Sprintf("%d.example", i), Port: 443})
		r.observe(acp.Event{Kind: acp.LineDropped, Text: strings.Repeat("x", 10_000)})
	}
	// What the agent is allowed to do is written, however much was refused before.
	r.observe(acp.Event{Kind: acp.Answered, Method: policy.MethodPermission, Verdict: policy.Verdict{Action: policy.Allow, Rule: "P5", Reason: "rm -rf was answered allow_once"}})
	r.Abort()

	recs, err := audit.Tail(w.audit, 10_000, nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, rec := range recs {
		kinds[rec.Kind]++
		if len(rec.Subject) > maxSubject || len(rec.Reason) > maxReason || !utf8.ValidString(rec.Subject) {
			t.Errorf("a record of %d and %d bytes", len(rec.Subject), len(rec.Reason))
		}
	}
	if len(recs) != 404 || kinds[audit.KindTool] != 200 || kinds[audit.KindAnswer] != 1 || kinds[audit.KindStart] != 1 || kinds[audit.KindStop] != 1 {
		t.Errorf("%d records: %v", len(recs), kinds)
	}
	if !slices.ContainsFunc(recs, func(r audit.Record) bool { return r.Reason == "8600 more verdicts were not written" }) {
		t.Error("what is missing is not told")
	}
	last := logOf(t, w, r.ID())
	if n := len(last); !strings.Contains(last[n-2].Text, "ended") || !strings.Contains(last[n-1].Text, "lines were dropped") {
		t.Errorf("the log ends in %+v", last[n-2:])
	}
}

func logOf(t *testing.T, w *world, id string) []types.LogLine {
	t.Helper()
	var lines []types.LogLine
	if err := w.m.Log(t.Context(), id, false, func(l types.LogLine) error { lines = append(lines, l); return nil }); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestLogBudgets fills the log with the agent's words; what the others say is kept.
func TestLogBudgets(t *testing.T) {
	dir := t.TempDir()
	l, err := newRunLog(dir, "run", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * MaxLogBytes / MaxLogLine {
		l.add("agent", strings.Repeat("a", MaxLogLine))
	}
	for range 2 * MaxOtherBytes / MaxLogLine {
		l.add("policy", strings.Repeat("p", MaxLogLine))
	}
	l.add(types.FromNotice, "kept")
	l.close()
	l.close()
	counts := map[string]int{}
	if err := readLog(t.Context(), logPath(dir, "run"), nil, func(line types.LogLine) error { counts[line.From]++; return nil }); err != nil {
		t.Fatal(err)
	}
	if counts[types.FromNotice] != 1 || counts["handlerd"] != 1 || counts["policy"] < 60 || counts["agent"] < 500 {
		t.Errorf("%v", counts)
	}
	if info, err := os.Stat(logPath(dir, "run")); err != nil || info.Size() > MaxLogBytes+MaxOtherBytes+4*MaxLogLine {
		t.Errorf("%v %v", info.Size(), err)
	}
}

// TestPruneLogs keeps the newest logs and those of live runs.
func TestPruneLogs(t *testing.T) {
	dir := t.TempDir()
	start := time.Unix(1000, 0)
	for i := range KeepLogs + 10 {
		path := logPath(dir, fmt.Sprintf("r%03d", i))
		write(t, path, "")
		if err := os.Chtimes(path, start, start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	pruneLogs(dir, map[string]*Run{"r003": {}})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != KeepLogs+1 || entries[0].Name() != "r003.jsonl" || entries[1].Name() != "r010.jsonl" {
		t.Errorf("%d logs are left, %v", len(entries), err)
	}
}

// TestReservePrunes starts a run where too many logs are.
func TestReservePrunes(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	if err := w.m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range KeepLogs + 5 {
		write(t, logPath(w.m.logs, fmt.Sprintf("old%d", i)), "")
	}
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	r.Abort()
	entries, err := os.ReadDir(w.m.logs)
	if err != nil || len(entries) != KeepLogs {
		t.Errorf("%d logs, %v", len(entries), err)
	}
}

func TestNotices(t *testing.T) {
	log, err := newRunLog(t.TempDir(), "run", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer log.close()
	r := newRun(nil, "run", nil, log)
	r.notice("a\x1b[2Jb\nc\u202ed")
	r.notice("%s", strings.Repeat("\x01", maxNotice+1))
	for i := range 100 {
		r.notice("%d", i)
	}
	if len(r.notices) != maxNotices || r.notices[0] != "a·[2Jb c·d" || len(r.notices[1]) > maxNotice || !strings.Contains(r.notices[maxNotices-1], "handler logs run") {
		t.Errorf("%d: %q … %q", len(r.notices), r.notices[0], r.notices[len(r.notices)-1])
	}
	paths := slices.Repeat([]string{strings.Repeat("é", 1000)}, 1000)
	if text := named(paths); len(text) > maxNamed*(maxNamedBytes+2)+20 || !utf8.ValidString(text) {
		t.Errorf("%d bytes", len(text))
	} else if !strings.HasSuffix(text, " and 980 more") {
		t.Error(text)
	}
}

// TestFound looks at what the look at the end says.
func TestFound(t *testing.T) {
	before := openScope{path: "/s", before: &scopes.View{Complete: true, Notices: []string{"old"}}}
	for _, test := range []struct {
		after *scopes.View
		err   error
		want  []string
	}{
		{&scopes.View{Complete: true, Notices: []string{"old"}}, nil, nil},
		{&scopes.View{Notices: []string{"old", "new"}}, nil, []string{"too many entries", "after the run: new"}},
		{nil, errors.New("gone"), []string{"could not be looked at after the run: gone"}},
	} {
		got := found(before, test.after, test.err)
		if len(got) != len(test.want) {
			t.Errorf("%q, want %q", got, test.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], test.want[i]) {
				t.Errorf("%q, want %q", got, test.want)
			}
		}
	}
}

// TestSymlinkAtEnd leaves a symlink where a protected path would be: the person is told of it when the run has ended.
func TestSymlinkAtEnd(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.scope, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/elsewhere", filepath.Join(w.scope, ".git", "hooks")); err != nil {
		t.Fatal(err)
	}
	r.Abort()
	told := func(l types.LogLine) bool {
		return l.From == types.FromNotice && strings.Contains(l.Text, "symlinks")
	}
	if lines := logOf(t, w, r.ID()); !slices.ContainsFunc(lines, told) {
		t.Errorf("%+v", lines)
	}
}

// TestWaitFor waits for what never comes, and for what comes after it was given up.
func TestWaitFor(t *testing.T) {
	cause := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	free, ended := make(chan struct{}), make(chan struct{})
	cancel(cause)
	if _, err := waitFor(ctx, func() (int, error) { defer close(ended); <-free; return 1, nil }); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	close(free)
	<-ended
	if n, err := waitFor(t.Context(), func() (int, error) { return 2, nil }); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	limited, stop := withLookLimit(ctx)
	defer stop()
	if !errors.Is(context.Cause(limited), cause) {
		t.Error("the limit hides why a start was given up")
	}
}
