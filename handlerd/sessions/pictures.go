package sessions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/acp/pictures"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/policy/rawjson"
)

// Bounds of the pictures that are kept of what agents show, and of what persons say (I).
const (
	MaxPictureQueue  = 64 << 20  // bytes of one run's messages that wait to be looked at; a message always fits alone
	MaxPictureMemory = 128 << 20 // of all runs' together
	MaxPictureBytes  = 2 << 30   // of one run's messages that are looked at in all
	maxPictureNames  = 512       // tool calls whose names are remembered, as many as questions are joined with
	keepTime         = 10 * time.Second
)

// A keeper keeps the pictures that a run's agent shows, and those of its prompts, as artifacts, beside the relay and never in its way: a message
// is only copied there. It works while it has something to do.
type keeper struct {
	r *Run

	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	names   map[string]string // of tool calls; protected by mu
	order   []string          // their ids, oldest first; protected by mu
	queue   []keeping         // protected by mu
	waiting int               // bytes of queue; protected by mu
	looked  int64             // bytes taken in all; protected by mu
	added   int               // taken into the queue in all; protected by mu
	done    int               // worked off; protected by mu
	working bool              // protected by mu
	closed  bool              // protected by mu
	changed chan struct{}     // closed and made anew when done changes; protected by mu
	said    map[string]bool   // what the person was told already; protected by mu

	seen map[[sha256.Size]byte]bool // by work alone
}

// A keeping is a message to look at, or with no line a session whose artifacts go.
type keeping struct {
	session, name, tool string
	line                []byte
	prompt              bool // line is the content of a prompt, and not an update
}

func newKeeper(r *Run) *keeper {
	ctx, cancel := context.WithCancel(context.Background()) // ended by close
	return &keeper{
		r: r, ctx: ctx, cancel: cancel, names: map[string]string{}, changed: make(chan struct{}),
		said: map[string]bool{}, seen: map[[sha256.Size]byte]bool{},
	}
}

// say is something that the person should know when the run has ended, and in its log at once.
func (r *Run) say(format string, args ...any) {
	r.log.add(types.FromNotice, printable(fmt.Sprintf(format, args...), maxNotice))
}

// observe takes what the relay sees of pictures. It is quick: it copies, and drops what is over a bound.
func (k *keeper) observe(e acp.Event) {
	if k.r.m.opts.Artifacts == nil {
		return
	}
	switch {
	case e.Kind == acp.ToolCalled:
		k.name(e.Tool, e.Name)
	case e.Kind == acp.Pictured:
		k.offer(keeping{session: e.Session, name: k.name(e.Tool, e.Name), tool: strings.Clone(e.Tool), line: e.Line})
	case e.Kind == acp.SessionClosed && e.Method == "session/delete":
		k.offer(keeping{session: e.Session})
	}
}

// name remembers what a tool call is called, and gives what it was called first.
func (k *keeper) name(tool, name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.names[tool]; known != "" || tool == "" || name == "" {
		return known
	}
	k.names[tool] = strings.Clone(name)
	if k.order = append(k.order, tool); len(k.order) > maxPictureNames {
		delete(k.names, k.order[0])
		k.order = slices.Delete(k.order, 0, 1)
	}
	return name
}

func (k *keeper) offer(one keeping) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(one.line)
	switch {
	case k.closed:
		return
	case k.looked+int64(n) > MaxPictureBytes:
		k.tell("pictures", fmt.Sprintf("the agent has sent more than %d GiB of messages with pictures: no more are kept", MaxPictureBytes>>30))
		return
	case k.waiting > 0 && k.waiting+n > MaxPictureQueue, n > 0 && k.r.m.pictures.Load()+int64(n) > MaxPictureMemory:
		k.tell("queue", "the agent sends pictures faster than they are kept: some are not")
		return
	}
	one.line = bytes.Clone(one.line)
	k.queue = append(k.queue, one)
	k.waiting += n
	k.looked += int64(n)
	k.r.m.pictures.Add(int64(n))
	k.added++
	if !k.working {
		k.working = true
		go k.work()
	}
}

// tell says something once. The caller holds mu.
func (k *keeper) tell(about, text string) {
	if !k.said[about] {
		k.said[about] = true
		k.r.say("%s", text)
	}
}

// work ends when there is nothing to do.
func (k *keeper) work() {
	for {
		k.mu.Lock()
		if len(k.queue) == 0 {
			k.working = false
			k.mu.Unlock()
			return
		}
		one := k.queue[0]
		k.queue[0] = keeping{}
		k.queue = k.queue[1:]
		k.mu.Unlock()
		if one.line == nil {
			k.forget(one.session)
		} else {
			k.look(one)
		}
		k.mu.Lock()
		k.waiting -= len(one.line)
		k.r.m.pictures.Add(-int64(len(one.line)))
		k.done++
		close(k.changed)
		k.changed = make(chan struct{})
		k.mu.Unlock()
	}
}

// promptName is what pictures of a person's own messages are called.
const promptName = "your message"

// prompted takes the content of a prompt whose pictures are too large for its event. It is as quick as observe.
func (k *keeper) prompted(session string, content []byte) {
	if k.r.m.opts.Artifacts != nil && len(content) > 0 {
		k.offer(keeping{session: session, name: promptName, line: content, prompt: true})
	}
}

// look keeps the pictures of one message.
func (k *keeper) look(one keeping) {
	if one.prompt {
		pictures.Find(one.line, func(b64 string) { k.keep(one, b64) })
		return
	}
	update := rawjson.Lookup(one.line, 0, "params", "update")
	if update < 0 {
		return
	}
	end, err := rawjson.Skip(one.line, update)
	if err != nil {
		return
	}
	raw := rawjson.Span{Start: update, End: end}
	err = rawjson.Members(one.line, raw, func(m rawjson.Member) error {
		if m.Name == "content" || m.Name == "rawOutput" {
			pictures.Find(m.Value.Of(one.line), func(b64 string) { k.keep(one, b64) })
		}
		return nil
	})
	if err != nil {
		return // the relay has carried it: it is JSON
	}
}

func (k *keeper) keep(one keeping, b64 string) {
	data, _, ext, err := pictures.Decode(b64)
	if err != nil {
		k.trouble("decode", fmt.Sprintf("%v; it was not kept", err))
		return
	}
	sum := sha256.Sum256(data)
	if k.seen[sum] || len(k.seen) >= 2*artifacts.MaxPerRun {
		return
	}
	ctx, cancel := context.WithTimeout(k.ctx, keepTime)
	defer cancel()
	store, owner := k.r.m.opts.Artifacts, k.r.m.opts.Principal
	// A tool that handlerd serves may have kept it by itself.
	k.r.recorder.shown(sum, one.tool)
	if found, err := store.Find(ctx, owner, k.r.id, hex.EncodeToString(sum[:])); err == nil {
		k.seen[sum] = true
		if one.tool != "" {
			k.r.recorder.artifact(store.Describe(found), false) // now it is known whose it is
		}
		return
	}
	meta := artifacts.Meta{Owner: owner, Run: k.r.id, Session: one.session, Agent: k.r.plan.Agent, Name: toolFile(one.name) + "." + ext, Source: one.name}
	if _, err := store.Add(ctx, meta, bytes.NewReader(data)); err != nil {
		k.trouble("add", "a picture was not kept: "+trouble(err))
		return
	}
	k.seen[sum] = true
}

func (k *keeper) forget(session string) {
	ctx, cancel := context.WithTimeout(k.ctx, keepTime)
	defer cancel()
	if _, err := k.r.m.opts.Artifacts.RemoveSession(ctx, k.r.m.opts.Principal, k.r.plan.Agent, session); err != nil {
		k.trouble("remove", "the artifacts of a deleted session are still there: "+trouble(err))
	}
}

func (k *keeper) trouble(about, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tell(about, text)
}

// trouble says what is wrong with the store, with the remedy.
func trouble(err error) string {
	var bad *artifacts.IndexError
	if errors.As(err, &bad) {
		return err.Error() + " — " + bad.Hint()
	}
	return err.Error()
}

// settle returns when everything that was shown before it is kept, or ctx is done.
func (k *keeper) settle(ctx context.Context) {
	k.mu.Lock()
	until := k.added
	for k.done < until {
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
	}
	k.mu.Unlock()
}

// close keeps what was shown, as far as that takes no long time, and returns when the keeper does nothing any more.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	k.settle(ctx)
	k.cancel()
	k.settle(context.Background()) // what is left fails at once
}

// toolFile makes the beginning of a file's name of a tool's name: the tool's own, of the spellings that agents have for
// the tool of an MCP server.
func toolFile(name string) string {
	for _, sep := range []string{"__", "."} {
		if parts := strings.SplitN(name, sep, 3); len(parts) == 3 && parts[0] == "mcp" {
			name = parts[2]
		}
	}
	if _, after, ok := strings.Cut(name, ": "); ok {
		name = after
	}
	var b strings.Builder
	for _, c := range strings.ToLower(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			b.WriteRune(c)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
		if b.Len() >= 40 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "picture"
}
