package sessions

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Bounds of the runs' logs.
const (
	MaxLogBytes   = 8 << 20 // of what one run's agent says; what comes after is counted and dropped
	MaxOtherBytes = 1 << 20 // of what one run's policy, its notices, and handlerd say, each
	MaxLogLine    = 16 << 10
	KeepLogs      = 200 // newest runs whose logs are kept
)

// A runLog is what one run said: its agent's standard error, what the rules refused, what handlerd did. It is a file
// of JSON lines that outlives the run, so that `handler logs` can show why an agent died.
type runLog struct {
	now func() time.Time

	mu      sync.Mutex
	file    *os.File         // protected by mu; nil after close
	sizes   map[string]int64 // protected by mu; by who is charged, so that none can push the others out
	dropped int              // protected by mu
	changed chan struct{}    // protected by mu; closed and made anew by every append, closed for good by close
}

func newRunLog(dir, id string, now func() time.Time) (*runLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(logPath(dir, id), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &runLog{file: f, now: now, sizes: map[string]int64{}, changed: make(chan struct{})}, nil
}

func logPath(dir, id string) string { return filepath.Join(dir, id+".jsonl") }

// add appends a line. A log that cannot be written loses lines, never the run.
func (l *runLog) add(from, text string) { l.charge(from, from, text) }

// charge is add for a line that takes the room of another than whom it is from.
func (l *runLog) charge(payer, from, text string) {
	text = cut(text, MaxLogLine)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	limit := int64(MaxOtherBytes)
	if payer == "agent" {
		limit = MaxLogBytes
	}
	if l.sizes[payer] > limit {
		l.dropped++
		return
	}
	l.sizes[payer] += l.write(types.LogLine{From: from, Text: text})
	close(l.changed)
	l.changed = make(chan struct{})
}

// artifact adds a line that tells of an artifact. There are few of them (artifacts.MaxPerRun) unless they come and go.
func (l *runLog) artifact(text string, a types.Artifact, removed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if l.sizes[types.FromArtifact] > MaxOtherBytes {
		l.dropped++
		return
	}
	l.sizes[types.FromArtifact] += l.write(types.LogLine{From: types.FromArtifact, Text: cut(text, MaxLogLine), Artifact: &a, Removed: removed})
	close(l.changed)
	l.changed = make(chan struct{})
}

// end adds the line that says how the run ended, whatever room there is. cause is nil where client or agent ended it
// as they meant to.
func (l *runLog) end(text string, cause error) {
	line := types.LogLine{From: "handlerd", Text: cut(text, MaxLogLine)}
	if cause != nil {
		line.End, _ = types.FromError(cause)
		line.End.Message = cut(line.End.Message, MaxLogLine)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	l.write(line)
	close(l.changed)
	l.changed = make(chan struct{})
}

// write writes a line, whatever room there is, and gives its length. The caller holds mu.
func (l *runLog) write(line types.LogLine) int64 {
	line.Time = l.now()
	data, err := json.Marshal(line)
	if err != nil {
		return 0
	}
	n, _ := l.file.Write(append(data, '\n'))
	return int64(n)
}

// close ends the log; it is idempotent.
func (l *runLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if l.dropped > 0 {
		l.write(types.LogLine{From: "handlerd", Text: fmt.Sprintf("the log was full; %d lines were dropped", l.dropped)})
	}
	l.file.Close()
	l.file = nil
	close(l.changed)
}

// wait gives a channel that closes at the next change, and whether the log has ended.
func (l *runLog) wait() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.file == nil
}

// readLog calls f for each line of the log at path; with a live log it goes on until that ends or ctx is done.
func readLog(ctx context.Context, path string, live *runLog, f func(types.LogLine) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReader(file)
	var part []byte
	for ctx.Err() == nil {
		var changed <-chan struct{}
		ended := true
		if live != nil {
			changed, ended = live.wait()
		}
		for {
			more, err := r.ReadBytes('\n')
			part = append(part, more...)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			var line types.LogLine
			if err := json.Unmarshal(part, &line); err == nil {
				if err := f(line); err != nil {
					return err
				}
			}
			part = part[:0]
		}
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// findLog gives the id of the one log whose id begins with prefix.
func findLog(dir, prefix string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".jsonl"); ok && strings.HasPrefix(id, prefix) {
			if id == prefix {
				return id, nil
			}
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		return "", noRun(prefix, found)
	}
	return found[0], nil
}

// pruneLogs removes all but the newest KeepLogs logs, and none of the live runs.
func pruneLogs(dir string, live map[string]*Run) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= KeepLogs {
		return
	}
	type log struct {
		path string
		time time.Time
	}
	var logs []log
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			logs = append(logs, log{filepath.Join(dir, e.Name()), info.ModTime()})
		}
	}
	sort.Slice(logs, func(i, j int) bool { return logs[i].time.After(logs[j].time) })
	for _, l := range logs[min(KeepLogs, len(logs)):] {
		// A live run that says nothing has an old log.
		if live[strings.TrimSuffix(filepath.Base(l.path), ".jsonl")] == nil {
			_ = os.Remove(l.path)
		}
	}
}
