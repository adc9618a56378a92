package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
)

// What streams: so many sessions, each with a word so often.
const (
	streamSessions = 20
	streamPause    = 20 * time.Millisecond
)

// streamAgent is bench itself, in a sandbox of each session's own.
const streamAgent = "stream"

// measureStream finds out what twenty sessions cost the daemon that stream at once, each of them followed, as on the page: its
// processor time, and how long a word is on its way from the agent to who follows.
func measureStream(ctx context.Context, b *bench) (err error) {
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	if err := d.writeStreamAgent(); err != nil {
		return err
	}
	var ids []string
	defer func() {
		for _, id := range ids {
			err = errors.Join(err, d.api.RemoveSession(context.WithoutCancel(ctx), id))
		}
	}()
	for range streamSessions {
		s, err := d.api.NewSession(ctx, types.NewSession{Agent: streamAgent, Cwd: d.scope})
		if err != nil {
			return err
		}
		ids = append(ids, s.ID)
	}
	window := time.Duration(b.times(20, 5)) * time.Second
	following, stop := context.WithCancel(ctx)
	defer stop()
	var all followers
	all.follow(following, d, ids)
	all.wait.Go(func() { // the page's lists
		_ = d.api.Feed(following, func() {}, func(types.Change) error { return nil }) // it ends with following
	})
	if err := d.promptAll(ctx, ids, window); err != nil {
		return err
	}
	used, words, took, err := all.during(ctx, d, window)
	stop()
	all.wait.Wait()
	if err = errors.Join(err, all.failed()); err != nil {
		return err
	}
	b.report.add(row{
		Group: "stream", What: "daemon, while 20 sessions stream 50 words a second each, all followed, of a core", Figure: 100 * used.Seconds() / window.Seconds(),
		Unit: "%", Target: atMost(100), Numbers: []number{{"words a second", words / window.Seconds(), ""}},
	})
	b.report.add(row{
		Group: "stream", What: "a word from an agent in its sandbox to who follows, meanwhile, median", Figure: median(took), Unit: "ms", Target: atMost(50),
		Numbers: []number{{"99th percentile", quantile(took, 0.99), "ms"}},
	})
	return nil
}

func (d *daemon) writeStreamAgent() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	inside := filepath.Join(d.scope, "bench")
	harness := fmt.Sprintf("name = %q\ncommand = [%q, %q]\nmcpTransports = [\"stdio\"]\n", streamAgent, inside, rolePrefix+"stream")
	for name, text := range map[string]string{
		inside: string(program),
		filepath.Join(d.catalog.Config, "harness", streamAgent+".toml"): harness,
		filepath.Join(d.catalog.AgentsDir(), streamAgent+".toml"):       fmt.Sprintf("harness = %q\nbindings = {}\n", streamAgent),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// promptAll lets every session stream for the window and some time before and after it.
func (d *daemon) promptAll(ctx context.Context, ids []string, window time.Duration) error {
	for _, id := range ids {
		text := strconv.Itoa(int((window + 10*time.Second) / streamPause))
		content := json.RawMessage(`[{"type":"text","text":"` + text + `"}]`)
		if _, err := d.api.Prompt(ctx, id, types.Prompt{Content: content}); err != nil {
			return err
		}
	}
	return nil
}

// followers are those of all sessions.
type followers struct {
	wait sync.WaitGroup

	mu   sync.Mutex
	took []float64 // of each word, in milliseconds; protected by mu
	errs []error   // protected by mu
}

func (f *followers) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

func (f *followers) follow(ctx context.Context, d *daemon, ids []string) {
	for _, id := range ids {
		f.wait.Go(func() {
			err := d.api.SessionEvents(ctx, id, 0, true, f.event)
			if ctx.Err() == nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.errs = append(f.errs, fmt.Errorf("following session %s ended: %w", id, err))
			}
		})
	}
}

// event takes the time of a word: it is the moment in which the agent said it, in nanoseconds.
func (f *followers) event(e types.Event) error {
	if e.Kind != types.EventUpdate {
		return nil
	}
	var u struct {
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(e.Data, &u); err != nil {
		return err
	}
	said, err := strconv.ParseInt(strings.TrimSpace(u.Content.Text), 10, 64)
	if err != nil {
		return nil // what it is not about
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, milliseconds(time.Since(time.Unix(0, said))))
	return nil
}

// during gives the daemon's processor time of a window, and the words that came in it.
func (f *followers) during(ctx context.Context, d *daemon, window time.Duration) (used time.Duration, words float64, took []float64, err error) {
	seen := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.took)
	}
	if err := rest(ctx, time.Second); err != nil { // the first ones find files and connections that are new
		return 0, 0, nil, err
	}
	first, before := seen(), processorTime(d.cmd.Process.Pid)
	if err := rest(ctx, window); err != nil {
		return 0, 0, nil, err
	}
	used, last := processorTime(d.cmd.Process.Pid)-before, seen()
	f.mu.Lock()
	defer f.mu.Unlock()
	if last == first {
		return 0, 0, nil, errors.Join(append(f.errs, errors.New("no word came"))...)
	}
	return used, float64(last - first), append([]float64(nil), f.took[first:last]...), nil
}

// processorTime is what a process has used, of the system's time too; its children's apart.
func processorTime(pid int) time.Duration {
	text := readString(fmt.Sprintf("/proc/%d/stat", pid))
	_, text, _ = strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ") // the name may hold anything
	fields := strings.Fields(text)
	if len(fields) < 13 {
		return 0 // it has ended, which is found out elsewhere
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// streamRole is an ACP agent that says as many words as its prompt names, one every streamPause, each the time at which it
// is said.
func streamRole([]string) error {
	in, session := bufio.NewReader(os.Stdin), ""
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // the end of input is how it ends
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Prompt []struct {
					Text string `json:"text"`
				} `json:"prompt"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{}}`
		case "session/new":
			session = "s" + strconv.FormatInt(time.Now().UnixNano(), 36)
			result = `{"sessionId":"` + session + `"}`
		case "session/prompt":
			result = `{"stopReason":"end_turn"}`
			if len(m.Params.Prompt) > 0 {
				n, _ := strconv.Atoi(m.Params.Prompt[0].Text)
				if err := sayWords(session, n); err != nil {
					return err
				}
			}
		}
		if m.ID == nil {
			continue
		}
		if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result); err != nil {
			return nil
		}
	}
}

func sayWords(session string, n int) error {
	ticks := time.NewTicker(streamPause)
	defer ticks.Stop()
	for range n {
		<-ticks.C
		_, err := fmt.Printf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d "}}}}`+"\n",
			session, time.Now().UnixNano())
		if err != nil {
			return err
		}
	}
	return nil
}
