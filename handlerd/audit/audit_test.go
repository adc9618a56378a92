package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openTest(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func refusal(subject string) Record {
	return Record{Kind: KindNetwork, Verdict: Refused, Subject: subject}
}

func subjects(records []Record) []string {
	var s []string
	for _, r := range records {
		s = append(s, r.Subject)
	}
	return s
}

func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "audit.jsonl")
	l := openTest(t, path)
	l.now = func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 8_900_000, time.FixedZone("", 3600)) }
	r := Of(policy.Verdict{Action: policy.Refuse, Rule: "P3", Reason: "api.example.org is not allowed"})
	r.Run, r.Agent, r.Kind, r.Subject = "k3f9", "web", KindMessage, "session/new"
	if err := l.Append(r); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := `{"v":2,"n":1,"prev":"","time":"2026-03-04T04:06:07.008Z","kind":"chain","reason":"the chain begins"}` + "\n"
	want := begin + `{"v":2,"n":2,"prev":"` + fmt.Sprintf("%x", sha256.Sum256([]byte(begin))) + `","time":"2026-03-04T04:06:07.008Z","run":"k3f9","agent":"web","kind":"message","rule":"P3","verdict":"refused","subject":"session/new","reason":"api.example.org is not allowed"}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, mode)
		}
	}
	if err := l.Append(Record{Verdict: Refused}); err == nil {
		t.Error("a record without a kind was taken")
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := l.Append(refusal("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestOf(t *testing.T) {
	for action, want := range map[policy.Action]string{policy.Allow: Allowed, policy.Edit: Edited, policy.Refuse: Refused} {
		if got := Of(policy.Verdict{Action: action}).Verdict; got != want {
			t.Errorf("%v is %q, want %q", action, got, want)
		}
	}
}

// TestBounds: whatever comes in, a line is one line, bounded, and JSON.
func TestBounds(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 1<<20), strings.Repeat("<", 1<<20), strings.Repeat("ä", 1<<20), strings.Repeat("\x00", 1<<20),
		strings.Repeat("\xff", 1<<20), strings.Repeat("a://", 1<<18), "\n\r\u2028\x1b[31m\u202e\u200e\u061c",
	} {
		line, err := encode(Record{Kind: KindStop, Verdict: Refused, Run: text, Agent: text, Session: text, Rule: text, Subject: text, Reason: text}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if len(line) > MaxLine || strings.Count(string(line), "\n") != 1 || json.Unmarshal(line, &r) != nil {
			t.Errorf("%.20q gives a line of %d bytes: %.100q", text, len(line), line)
		}
		if strings.ContainsAny(r.Subject, "\x1b\x00\n\u202e\u200e\u061c") {
			t.Errorf("%.20q keeps control characters: %.100q", text, r.Subject)
		}
	}
}

func TestNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"https://ana:hunter2@example.org/a?token=hunter2#hunter2":   "https://example.org/a",
		"GET http://x.org?k=hunter2 and http://y.org/p?hunter2 too": "GET http://x.org and http://y.org/p too",
		"example.org:443":   "example.org:443",
		"why? because":      "why? because",
		`"ws://hunter2@h/"`: `"ws://h/"`,
	} {
		if got := clean(text, maxText); got != want {
			t.Errorf("clean(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if got, err := Tail(path, 5, nil); err != nil || got != nil {
		t.Fatalf("no log: %v, %v", got, err)
	}
	l := openTest(t, path)
	l.max = 1700 // about nine lines
	for i := range 40 {
		r := refusal(fmt.Sprint(i))
		r.Agent = []string{"web", "docs"}[i%2]
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Tail(path, 3, nil)
	if diff := cmp.Diff([]string{"37", "38", "39"}, subjects(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = Tail(path, 12, func(r Record) bool { return r.Agent == "web" })
	if s := subjects(got); err != nil || len(s) != 12 || s[0] != "16" || s[11] != "38" {
		t.Errorf("over files: %v, %v", s, err)
	}
	got, err = Tail(path, 1000, nil)
	if s := subjects(got); err != nil || len(s) < 30 || s[len(s)-1] != "39" {
		t.Errorf("all: %v, %v", s, err)
	}
	for i, r := range got {
		if want := fmt.Sprint(40 - len(got) + i); r.Subject != want {
			t.Fatalf("record %d is %q, want %q", i, r.Subject, want)
		}
	}
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	l := openTest(t, path)
	l.max = 900
	for range 100 {
		if err := l.Append(refusal("x")); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != KeepFiles+2 {
		t.Fatalf("%d files, want %d and the head: %v", len(entries), KeepFiles+1, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if e.Name() == "audit.jsonl.head" && info.Size() == headBytes {
			continue
		}
		if err != nil || info.Size() > 900 || info.Size() == 0 || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info, err)
		}
	}
}

// TestTorn: a crash in the middle of a line costs that line alone.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"v":1,"kind":"run","verdict":"refused","subject":"1"}`+"\n"+`{"v":1,"kind":"ru`), 0o644); err != nil {
		t.Fatal(err)
	}
	l := openTest(t, path)
	if err := l.Append(refusal("3")); err != nil {
		t.Fatal(err)
	}
	got, err := Tail(path, 9, nil)
	if diff := cmp.Diff([]string{"1", "3"}, subjects(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file stayed open to others: %v, %v", info.Mode(), err)
	}
}

func TestReadersSkip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	text := "garbage\n{}\n" + strings.Repeat("x", 3*MaxLine) + "\n" +
		`{"v":2,"kind":"run","verdict":"refused","subject":"later","chain":"abc"}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Tail(path, 9, nil)
	if diff := cmp.Diff([]string{"later"}, subjects(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "link"), dir} {
		if l, err := Open(path); err == nil {
			l.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

func TestConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := openTest(t, path)
	l.max = 8000
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := l.Append(refusal(fmt.Sprintf("%d/%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := Tail(path, 1000, nil)
	if err != nil || len(got) != writers*each {
		t.Fatalf("%d records, want %d: %v", len(got), writers*each, err)
	}
	next := make(map[string]int)
	for _, r := range got {
		w, i, _ := strings.Cut(r.Subject, "/")
		if fmt.Sprint(next[w]) != i {
			t.Fatalf("writer %s: got %s, want %d", w, i, next[w])
		}
		next[w]++
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := openTest(t, path)
	l.max = 1200
	if err := l.Append(refusal("before")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, 100)
	done := make(chan error)
	f := follower{path: path, each: func(r Record) error { seen <- r.Subject; return nil }}
	if err := f.open(io.SeekEnd); err != nil { // as Follow begins, but known to have begun
		t.Fatal(err)
	}
	defer f.close()
	for i := range 10 { // rotates once or twice
		if err := l.Append(refusal(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := f.read(); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", got, i)
		}
	}

	go func() {
		done <- Follow(ctx, path+".later", nil, func(r Record) error { seen <- r.Subject; return nil })
	}()
	later := openTest(t, path+".later")
	if err := later.Append(refusal("late")); err != nil {
		t.Fatal(err)
	}
	// Follow may have begun after the first line, so lines come until it has seen one.
	for got := ""; got == ""; {
		select {
		case got = <-seen:
		case <-time.After(pollEvery):
			if err := later.Append(refusal("late")); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow gave %v", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(filepath.Join(b.TempDir(), "audit.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Append(refusal("example.org:443")); err != nil {
				b.Error(err)
			}
		}
	})
}
