package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// writeLog writes n records, put aside at max bytes, and gives the path. Every line is the same on every machine.
func writeLog(t testing.TB, n int, max int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if max > 0 {
		l.max = max
	}
	l.now = func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }
	for i := range n {
		if err := l.Append(refusal(fmt.Sprintf("host-%02d.example.org", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func readLines(t testing.TB, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	return lines[:len(lines)-1]
}

func writeLines(t testing.TB, path string, lines [][]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// relink gives a line as somebody would who writes it anew behind another: a forger who recomputes one digest.
func relink(body string, prev []byte, n int64) []byte {
	line, _ := chained([]byte(bodyHead+body+"\n"), link{n - 1, sha256.Sum256(prev)}, false)
	return line
}

const forged = `"time":"2026-03-04T05:06:07Z","kind":"network","verdict":"refused","subject":"nobody.example.org"}`

func TestVerify(t *testing.T) {
	path := writeLog(t, 12, 900)
	report, err := Verify(path, "")
	if err != nil {
		t.Fatal(err)
	}
	last := readLines(t, path)
	if report.Files < 3 || report.Lines < 10 || report.Behind != 0 || report.Torn != 0 ||
		report.Head.Digest != fmt.Sprintf("%x", sha256.Sum256(last[len(last)-1])) {
		t.Errorf("%+v", report)
	}
	for _, kept := range []string{report.Head.String(), report.Head.Digest} {
		if _, err := Verify(path, kept); err != nil {
			t.Errorf("its own head: %v", err)
		}
	}
}

// TestTampering: whatever is done to a log of which nothing was pruned, the first line that was touched is named.
func TestTampering(t *testing.T) {
	type lines = [][]byte
	const k = 5 // the line that is touched, from 0: number 6
	cut := func(l lines, i int) lines { return slices.Delete(slices.Clone(l), i, i+1) }
	for _, tt := range []struct {
		name string
		do   func(lines) lines
		what string
		line int
	}{
		{"a word is edited", func(l lines) lines { l[k] = bytes.Replace(l[k], []byte("host"), []byte("toss"), 1); return l }, WasEdited, k + 1},
		{"the last line is edited", func(l lines) lines {
			l[len(l)-1] = bytes.Replace(l[len(l)-1], []byte("refused"), []byte("allowed"), 1)
			return l
		}, WasEdited, 11},
		{"the first line is edited", func(l lines) lines { l[0] = bytes.Replace(l[0], []byte("begins"), []byte("starts"), 1); return l }, WasEdited, 1},
		{"a line is edited and the next one's digest with it", func(l lines) lines {
			l[k] = bytes.Replace(l[k], []byte("host"), []byte("toss"), 1)
			l[k+1] = relink(string(l[k+1][bytes.Index(l[k+1], []byte(`"time"`)):len(l[k+1])-1]), l[k], k+2)
			return l
		}, WasEdited, k + 2},
		{"its number is edited", func(l lines) lines { l[k] = bytes.Replace(l[k], []byte(`"n":6`), []byte(`"n":7`), 1); return l }, WasEdited, k + 1},
		{"its digest of the one before", func(l lines) lines {
			i := bytes.Index(l[k], []byte(linkPrev)) + len(linkPrev)
			l[k][i] ^= 1
			return l
		}, WasEdited, k + 1},
		{"it is made no line", func(l lines) lines { l[k] = []byte("gone\n"); return l }, WasEdited, k + 1},
		{"a space is put in", func(l lines) lines { l[k] = bytes.Replace(l[k], []byte(`":`), []byte(`": `), 1); return l }, WasEdited, k + 1},
		{"a line end is made another", func(l lines) lines { l[k] = append(bytes.TrimSuffix(l[k], []byte("\n")), "\r\n"...); return l }, WasEdited, k + 1},
		{"a line is taken out", func(l lines) lines { return cut(l, k) }, WasRemoved, k + 1},
		{"three are", func(l lines) lines { return cut(cut(cut(l, k), k), k) }, WasRemoved, k + 1},
		{"the first is", func(l lines) lines { return cut(l, 0) }, WasRemoved, 1},
		{"the last is cut off", func(l lines) lines { return cut(l, len(l)-1) }, WasCut, 10},
		{"half are", func(l lines) lines { return l[:k] }, WasCut, k},
		{"all are", func(lines) lines { return nil }, WasCut, 0},
		{"two change places", func(l lines) lines { l[k], l[k+1] = l[k+1], l[k]; return l }, WasReordered, k + 1},
		{"one is moved to the end", func(l lines) lines { return append(cut(l, k), l[k]) }, WasReordered, k + 1},
		{"one is there twice", func(l lines) lines { return slices.Insert(l, k, l[k]) }, WasInserted, k + 2},
		{"an old one is put in", func(l lines) lines { return slices.Insert(l, k, l[2]) }, WasInserted, k + 1},
		{"a forged one that joins", func(l lines) lines { return slices.Insert(l, k, relink(forged, l[k-1], k+1)) }, WasInserted, k + 1},
		{"a forged one that does not", func(l lines) lines { return slices.Insert(l, k, relink(forged, l[0], k+1)) }, WasInserted, k + 1},
		{"one of version 1", func(l lines) lines { return slices.Insert(l, k, []byte(`{"v":1,`+forged+"\n")) }, WasInserted, k + 1},
		{"what is no line", func(l lines) lines { return slices.Insert(l, k, []byte("hello\n")) }, WasEdited, k + 1},
		{"a second beginning", func(l lines) lines { return slices.Insert(l, k, l[0]) }, WasInserted, k + 1},
		{"a beginning of a later number", func(l lines) lines {
			marker, _ := chained([]byte(bodyHead+`"time":"2026-03-04T05:06:07Z","kind":"chain","reason":"really"}`+"\n"), link{n: 30}, true)
			return append(l[:k:k], marker)
		}, WasCut, k + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeLog(t, 10, 0)
			writeLines(t, path, tt.do(readLines(t, path)))
			_, err := Verify(path, "")
			var bad *Tampering
			if !errors.As(err, &bad) || bad.What != tt.what || bad.Line != tt.line {
				t.Fatalf("got %v, want line %d %s", err, tt.line, tt.what)
			}
			offset := int64(0)
			if bad.Line > 0 {
				for _, line := range readLines(t, path)[:bad.Line-1] {
					offset += int64(len(line))
				}
			}
			if bad.File != "audit.jsonl" || bad.Offset != offset || bad.Reason == "" {
				t.Errorf("%+v, want byte %d", bad, offset)
			}
			// The daemon does not go on as if nothing were: what it found stays in the log.
			l := openTest(t, path)
			if err := l.Append(refusal("later")); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(path, ""); !errors.As(err, &bad) {
				t.Errorf("with a line behind it: %v", err)
			}
		})
	}
}

// TestTamperingOfFiles: the files that were put aside and the head are held too.
func TestTamperingOfFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, path string) error
		what string
		file string
	}{
		{"the oldest is removed", func(_ *testing.T, p string) error { return os.Remove(aside(p, KeepFiles)) }, WasRemoved, "audit.jsonl.3"},
		{"one in the middle is", func(_ *testing.T, p string) error { return os.Remove(aside(p, 2)) }, WasRemoved, "audit.jsonl.1"},
		{"the newest is", func(_ *testing.T, p string) error { return os.Remove(p) }, WasCut, "audit.jsonl.1"},
		{"two change names", func(_ *testing.T, p string) error {
			return errors.Join(os.Rename(aside(p, 1), p+".x"), os.Rename(aside(p, 2), aside(p, 1)), os.Rename(p+".x", aside(p, 2)))
		}, WasReordered, "audit.jsonl.2"},
		{"the head is removed", func(_ *testing.T, p string) error { return os.Remove(headPath(p)) }, WasRemoved, "audit.jsonl.head"},
		{"the head is overwritten", func(_ *testing.T, p string) error { return os.WriteFile(headPath(p), []byte("x"), 0o600) }, WasRemoved, "audit.jsonl.head"},
		{"the head's number is edited", func(_ *testing.T, p string) error {
			data, err := os.ReadFile(headPath(p))
			return errors.Join(err, os.WriteFile(headPath(p), bytes.ReplaceAll(data, []byte(`"n":4`), []byte(`"n":3`)), 0o600))
		}, WasRemoved, "audit.jsonl.head"},
		{"everything but the head", func(_ *testing.T, p string) error {
			for i := 0; i <= KeepFiles; i++ {
				if err := os.Remove(fileName(p, i)); err != nil {
					return err
				}
			}
			return nil
		}, WasCut, "audit.jsonl"},
		{"an edit in an old file", func(t *testing.T, p string) error {
			lines := readLines(t, aside(p, 3))
			lines[1] = bytes.Replace(lines[1], []byte("host"), []byte("toss"), 1)
			writeLines(t, aside(p, 3), lines)
			return nil
		}, WasEdited, "audit.jsonl.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeLog(t, 41, 1200)
			if _, err := Verify(path, ""); err != nil {
				t.Fatal(err)
			}
			if err := tt.do(t, path); err != nil {
				t.Fatal(err)
			}
			_, err := Verify(path, "")
			var bad *Tampering
			if !errors.As(err, &bad) || bad.What != tt.what || bad.File != tt.file {
				t.Fatalf("got %v, want %s %s", err, tt.file, tt.what)
			}
		})
	}
}

// TestEveryByte: no byte of a log can be another, and it can end nowhere else, without being found.
func TestEveryByte(t *testing.T) {
	path := writeLog(t, 3, 0)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(changed []byte) error {
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Verify(path, "")
		return err
	}
	for i := range data {
		for _, b := range []byte{data[i] ^ 1, '\n', 0, '"'} {
			if b == data[i] {
				continue
			}
			changed := bytes.Clone(data)
			changed[i] = b
			if err := try(changed); !errors.As(err, new(*Tampering)) {
				t.Errorf("byte %d as %q: %v", i, b, err)
			}
		}
		if err := try(data[:i]); !errors.As(err, new(*Tampering)) {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
	if err := try(data); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

// TestCrashAnywhere: a write that stops at any byte, in lives that follow each other, is a torn line and no tampering.
func TestCrashAnywhere(t *testing.T) {
	path := writeLog(t, 2, 0)
	data, _ := os.ReadFile(path)
	head, _ := os.ReadFile(headPath(path))
	l := openTest(t, path)
	if err := l.Append(refusal("cut short")); err != nil {
		t.Fatal(err)
	}
	l.Close()
	whole, _ := os.ReadFile(path)
	for end := len(data); end <= len(whole); end++ {
		if err := errors.Join(os.WriteFile(path, whole[:end], 0o600), os.WriteFile(headPath(path), head, 0o600)); err != nil {
			t.Fatal(err)
		}
		torn := 1
		if end == len(data) || end == len(whole) {
			torn = 0
		}
		if r, err := Verify(path, ""); err != nil || r.Torn != torn {
			t.Fatalf("killed at byte %d of %d: %+v, %v", end-len(data), len(whole)-len(data), r, err)
		}
		if end == len(whole)-1 {
			torn = 0 // it lacks its newline alone: the next life ends it
		}
		next, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(next.Append(refusal("next life")), next.Close())
		if r, bad := Verify(path, ""); err != nil || bad != nil || r.Torn != torn || r.Behind != 0 {
			t.Fatalf("killed at byte %d, one life later: %+v, %v, %v", end-len(data), r, err, bad)
		}
	}
}

// TestCrashInTheMarker: the line that names a torn one may be cut short itself.
func TestCrashInTheMarker(t *testing.T) {
	path := writeLog(t, 2, 0)
	head, _ := os.ReadFile(headPath(path))
	whole, _ := os.ReadFile(path)
	ragged := append(bytes.Clone(whole), `{"v":2,"n":4,"prev":"ab`...)
	if err := os.WriteFile(path, ragged, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openTest(t, path)
	if err := errors.Join(l.Append(refusal("second life")), l.Close()); err != nil {
		t.Fatal(err)
	}
	second, _ := os.ReadFile(path)
	for end := len(ragged); end < len(second); end++ {
		if err := errors.Join(os.WriteFile(path, second[:end], 0o600), os.WriteFile(headPath(path), head, 0o600)); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(l.Append(refusal("third life")), l.Close())
		if r, bad := Verify(path, ""); err != nil || bad != nil || r.Torn == 0 {
			t.Fatalf("killed at byte %d: %+v, %v, %v", end, r, err, bad)
		}
	}
}

// TestTornIsHeld: what a crash left cannot be edited, moved or taken out afterwards either.
func TestTornIsHeld(t *testing.T) {
	path := writeLog(t, 2, 0)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"v":2,"n":4,"prev":"`)
	l := openTest(t, path)
	if err := errors.Join(err, f.Close(), l.Append(refusal("x")), l.Close()); err != nil {
		t.Fatal(err)
	}
	lines := readLines(t, path)
	if r, err := Verify(path, ""); err != nil || r.Torn != 1 {
		t.Fatal(r, err)
	}
	for name, changed := range map[string][][]byte{
		"edited":  append(append(slices.Clone(lines[:3]), []byte(`{"v":2,"n":5,"prev":"`+"\n")), lines[4:]...),
		"removed": append(slices.Clone(lines[:3]), lines[4:]...),
		"longer":  append(append(slices.Clone(lines[:3]), []byte("x\n")), lines[3:]...),
		"moved":   {lines[0], lines[3], lines[1], lines[2], lines[4], lines[5]},
	} {
		writeLines(t, path, changed)
		if _, err := Verify(path, ""); !errors.As(err, new(*Tampering)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUpgrade: a log of version 1 is read on, and a chain begins behind it.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	old := `{"v":1,"time":"2026-01-01T00:00:00Z","kind":"start","run":"k3f9"}` + "\n" + `{"v":1,"time":"2026-01-01T00:00:00Z","kind":"st`
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	var bad *Tampering
	if _, err := Verify(path, ""); !errors.As(err, &bad) || bad.What != WasUnchained {
		t.Errorf("before: %v", err)
	}
	l := openTest(t, path)
	if err := errors.Join(l.Append(refusal("x")), l.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(path, "")
	if err != nil || r.Unchained != 1 || r.Lines != 2 || r.First != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	got, err := Tail(path, 9, func(Record) bool { return true })
	if err != nil || len(got) != 3 || got[0].Run != "k3f9" || !strings.Contains(got[1].Reason, "version 1") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLostHead: what a power cut may take from the head does no harm, and a torn write of it costs a batch at most.
func TestLostHead(t *testing.T) {
	path := writeLog(t, 5, 0)
	head, _ := os.ReadFile(headPath(path))
	for slot := range 2 {
		torn := bytes.Clone(head)
		clear(torn[slot*slotBytes+10 : (slot+1)*slotBytes])
		if err := os.WriteFile(headPath(path), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(path, ""); err != nil || r.Behind > 1 {
			t.Errorf("slot %d: %+v, %v", slot, r, err)
		}
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Append(refusal("on")), l.Close()); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(path, ""); err != nil || r.Behind != 0 {
			t.Errorf("slot %d, one life later: %+v, %v", slot, r, err)
		}
		head, _ = os.ReadFile(headPath(path))
	}
}

// TestKeptHead: who writes the whole log and its head anew is found by a head that was kept elsewhere, and by nothing
// else.
func TestKeptHead(t *testing.T) {
	path := writeLog(t, 5, 0)
	r, err := Verify(path, "")
	if err != nil {
		t.Fatal(err)
	}
	anew := writeLog(t, 9, 0)
	forger := openTest(t, filepath.Join(t.TempDir(), "audit.jsonl"))
	for i := range 9 {
		if err := forger.Append(refusal(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Verify(anew, r.Head.String()); err != nil {
		t.Errorf("the same log, longer: %v", err)
	}
	if _, err := Verify(forger.path, ""); err != nil {
		t.Errorf("the forger's own: %v", err)
	}
	for _, kept := range []string{r.Head.String(), r.Head.Digest} {
		if _, err := Verify(forger.path, kept); !errors.As(err, new(*Tampering)) {
			t.Errorf("kept %s: %v", kept, err)
		}
	}
	for _, kept := range []string{"x", "1:2", r.Head.Digest[1:], "z:" + strings.Repeat("0", 64)} {
		if _, err := Verify(path, kept); err == nil || errors.As(err, new(*Tampering)) {
			t.Errorf("kept %q: %v", kept, err)
		}
	}
}

// TestVerifyWhileAppending: a log that grows, is put aside and pruned meanwhile is never called touched.
func TestVerifyWhileAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := openTest(t, path)
	l.max = 3000
	if err := l.Append(refusal("first")); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := l.Append(refusal(fmt.Sprintf("%d/%d", w, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	pruned := false
	for i := 0; i < 200 || !pruned; i++ {
		r, err := Verify(path, "")
		if err != nil {
			t.Errorf("look %d: %v", i, err)
			break
		}
		pruned = r.First > 1
	}
	close(stop)
	wg.Wait()
}

// TestFullDisk: a line that does not fit is told, nothing of it stays, and the chain goes on when there is room.
func TestFullDisk(t *testing.T) {
	path := writeLog(t, 2, 0)
	l := openTest(t, path)
	ro, err := os.Open(path) // a descriptor that cannot be written to stands in for a disk without room
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	l.mu.Lock()
	good := l.file
	l.file = ro
	l.mu.Unlock()
	if err := l.Append(refusal("lost")); err == nil {
		t.Fatal("a line that was not written was taken")
	}
	l.mu.Lock()
	l.file = good
	l.mu.Unlock()
	if err := l.Append(refusal("kept")); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(path, ""); err != nil || r.Lines != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzVerify: whatever a log holds, Verify ends, and what it accepts with the head of a known log is that log or one that
// goes on from it.
func FuzzVerify(f *testing.F) {
	path := writeLog(f, 4, 0)
	data, _ := os.ReadFile(path)
	head, _ := os.ReadFile(headPath(path))
	f.Add(data, head)
	f.Add(data[:len(data)-7], head)
	f.Add([]byte("{\"v\":1,\"kind\":\"x\"}\n\x00\n"), []byte{})
	f.Add([]byte(linkHead+"1"+linkPrev+`","kind":"chain"}`+"\n"), head)
	f.Fuzz(func(t *testing.T, log, other []byte) {
		for _, h := range [][]byte{head, other} {
			state, _, known := parseHead(h)
			c := &chain{path: path, head: state, known: known, first: firstKept{state.First, state.FirstPrev}}
			if err := c.load(bytes.NewReader(log), path); err != nil {
				t.Fatal(err)
			}
			begin := bytes.Index(log, []byte(linkHead))
			if bad := c.check(); bad == nil && bytes.Equal(h, head) && (begin < 0 || !bytes.HasPrefix(log[begin:], data)) {
				t.Fatalf("another log passes: %+v\n%q", c.report, log)
			}
			if _, err := json.Marshal(c.report); err != nil {
				t.Error(err)
			}
		}
		if _, err := tailIn(bytes.NewReader(log), 2); err != nil {
			t.Error(err)
		}
	})
}

// TestExport: an exported file is the lines as they are, and is held as the log is.
func TestExport(t *testing.T) {
	path := writeLog(t, 20, 1200)
	name := filepath.Join(t.TempDir(), "x.jsonl")
	var out bytes.Buffer
	r, err := Export(path, time.Time{}, time.Now(), &out)
	if err != nil || r.Lines != 21 {
		t.Fatalf("%+v, %v", r, err)
	}
	if !bytes.Contains(out.Bytes(), bytes.Join(readLines(t, aside(path, 1)), nil)) {
		t.Error("the lines are not as they were")
	}
	check := func(data []byte) error {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := VerifyExport(name, "")
		return err
	}
	if err := check(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(out.Bytes(), []byte("\n"))
	for i := range lines[:len(lines)-1] {
		if err := check(bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil)); err == nil {
			t.Errorf("line %d is gone and nobody sees", i+1)
		}
		changed := slices.Clone(lines)
		changed[i] = bytes.Replace(lines[i], []byte("refused"), []byte("allowed"), 1)
		if bytes.Equal(changed[i], lines[i]) {
			continue
		}
		var bad *Tampering
		if err := check(bytes.Join(changed, nil)); !errors.As(err, &bad) || bad.Line != i+1 {
			t.Errorf("line %d is edited: %v", i+1, err)
		}
	}
	lines2 := readLines(t, path)
	writeLines(t, path, append(lines2[:len(lines2)-1:len(lines2)-1], []byte("x\n")))
	if _, err := Export(path, time.Time{}, time.Now(), &out); !errors.As(err, new(*Tampering)) {
		t.Errorf("a log that was touched is exported: %v", err)
	}
}

// TestExportSince: a part of the log is held by itself too.
func TestExportSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := openTest(t, path)
	begin := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	hour := 0
	l.now = func() time.Time { return begin.Add(time.Duration(hour) * time.Hour) }
	for hour = range 10 {
		if err := l.Append(refusal(fmt.Sprint(hour))); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "x.jsonl")
	for since, want := range map[int]int64{0: 11, 5: 5, 9: 1, 20: 0} {
		var out bytes.Buffer
		_, err := Export(path, begin.Add(time.Duration(since)*time.Hour), begin, &out)
		if err := errors.Join(err, os.WriteFile(name, out.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		if r, err := VerifyExport(name, ""); err != nil || r.Lines != want {
			t.Errorf("since %d: %+v, %v", since, r, err)
		}
	}
}

// TestWatch: what is there and what comes is given once each.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := openTest(t, path)
	l.max = 2000
	for i := range 5 {
		if err := l.Append(refusal(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	done := errors.New("done")
	err := Watch(t.Context(), path, 3, nil, func(r Record) error {
		got = append(got, r.Subject)
		if len(got) <= 20 {
			if err := l.Append(refusal(fmt.Sprint(4 + len(got)))); err != nil {
				return err
			}
			return nil
		}
		return done
	})
	if !errors.Is(err, done) || len(got) != 21 {
		t.Fatal(got, err)
	}
	for i, s := range got {
		if s != fmt.Sprint(i+2) {
			t.Fatalf("%v", got)
		}
	}
}
