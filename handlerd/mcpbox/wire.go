package mcpbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/policy/rawjson"
)

// Times and bounds of the connection to a server.
const (
	wireWrite = 10 * time.Second // for it to take one message
	wireLeave = time.Second      // to finish a message whose caller has gone
	wireNoise = 100              // lines that are no messages
	wireParts = 100_000          // values of one message: in memory each is many times what it is in text

	maxMessage = 1000 // bytes of what a server says of its progress
)

// A wireError is why we ended the connection ourselves.
type wireError struct{ text string }

func (e *wireError) Error() string { return e.text }

// A wire is mcp-go's connection to a server: one JSON message a line. mcp-go's own has no bound on a line, and a
// write of its cannot be given up. What comes is a sandbox's: it may be anything.
type wire struct {
	conn    net.Conn
	program string        // in messages
	changed func()        // the server has other tools; may be nil
	writing chan struct{} // holds one token while somebody writes
	asked   chan struct{} // one for each question of the server's that is being answered

	mu       sync.Mutex
	waiting  map[string]chan *transport.JSONRPCResponse        // by request id; protected by mu
	progress map[string]func(done, total float64, text string) // by token; protected by mu
	err      error                                             // why it ended; set before done is closed
	done     chan struct{}
	once     sync.Once
	reader   sync.WaitGroup
}

var _ transport.Interface = (*wire)(nil)

func newWire(conn net.Conn, program string, changed func()) *wire {
	return &wire{conn: conn, program: program, changed: changed, progress: map[string]func(done, total float64, text string){}, writing: make(chan struct{}, 1), asked: make(chan struct{}, 4),
		waiting: map[string]chan *transport.JSONRPCResponse{}, done: make(chan struct{})}
}

// Start reads until the connection ends.
func (w *wire) Start(context.Context) error {
	w.reader.Go(func() { w.end(w.read()) })
	return nil
}

// Close ends the connection and returns when nothing of it is left. It is idempotent.
func (w *wire) Close() error {
	w.end(transport.ErrTransportClosed)
	w.reader.Wait()
	return nil
}

// GetSessionId is "": there are no sessions on a stream.
func (w *wire) GetSessionId() string { return "" }

// SetNotificationHandler does nothing: of what a server tells unasked, the wire itself takes what is of use.
func (w *wire) SetNotificationHandler(func(mcp.JSONRPCNotification)) {}

func (w *wire) end(err error) {
	w.once.Do(func() {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		close(w.done)
		w.conn.Close()
	})
}

// why gives the reason of the end.
func (w *wire) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// SendRequest sends a request and waits for its answer.
func (w *wire) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	id := req.ID.String()
	answer := make(chan *transport.JSONRPCResponse, 1)
	w.mu.Lock()
	w.waiting[id] = answer
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
	}()
	if err := w.send(ctx, req); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.done:
		select {
		case r := <-answer: // the last it said
			return r, nil
		default:
			return nil, w.why()
		}
	}
}

// SendNotification sends a notification.
func (w *wire) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	return w.send(ctx, n)
}

// send writes one message. A message that is written in part ends the connection: nothing could follow it.
func (w *wire) send(ctx context.Context, message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("the message cannot be written: %w", err)
	}
	if len(line) > MaxRequest {
		return fmt.Errorf("the arguments are longer than %s", SizeText(MaxRequest))
	}
	select {
	case w.writing <- struct{}{}:
		defer func() { <-w.writing }()
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return w.why()
	}
	w.conn.SetWriteDeadline(time.Now().Add(wireWrite))
	stop := context.AfterFunc(ctx, func() { w.conn.SetWriteDeadline(time.Now().Add(wireLeave)) })
	defer stop()
	if _, err := w.conn.Write(append(line, '\n')); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = &wireError{w.program + " takes no messages"}
		}
		w.end(err) // anything else is its end, which its sandbox tells of
		return w.why()
	}
	return nil
}

// read passes answers on until the connection ends, and says why it did.
func (w *wire) read() error {
	r := bufio.NewReaderSize(w.conn, 64<<10)
	noise := 0
	for {
		line, err := w.line(r)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			continue
		}
		if intricate(line) {
			return &wireError{w.program + " gave a message of too many parts"}
		}
		if !w.take(line) {
			if noise++; noise > wireNoise {
				return &wireError{w.program + " writes what is no message"}
			}
		}
	}
}

// intricate says whether a message has more than wireParts values.
func intricate(line []byte) bool {
	n := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
		case '[', '{', ',':
			n++
		}
	}
	return n > wireParts
}

// take passes one message on; false if it is none.
func (w *wire) take(line []byte) bool {
	if r := plainAnswer(line); r != nil {
		w.deliver(r)
		return true
	}
	var m struct {
		transport.JSONRPCResponse
		Method string `json:"method"`
	}
	if json.Unmarshal(line, &m) != nil {
		return false
	}
	if m.Method != "" {
		if m.ID.IsNil() {
			w.notice(m.Method, line)
			return true
		}
		select { // a question is answered beside, so that reading goes on; whoever asks too many gets no answer
		case w.asked <- struct{}{}:
			w.reader.Go(func() {
				defer func() { <-w.asked }()
				w.decline(m.ID, m.Method)
			})
		default:
		}
		return true
	}
	w.deliver(&m.JSONRPCResponse)
	return true
}

// deliver gives an answer to who waits for it.
func (w *wire) deliver(r *transport.JSONRPCResponse) {
	w.mu.Lock()
	answer := w.waiting[r.ID.String()]
	delete(w.waiting, r.ID.String())
	w.mu.Unlock()
	if answer != nil {
		answer <- r // it has room for the one there is
	}
}

// plainAnswer reads an answer with a result, which may be long, several times as fast as encoding/json; nil for every
// other message, and for one that is not quite as it should be. The result is a part of line.
func plainAnswer(line []byte) *transport.JSONRPCResponse {
	s, err := rawjson.Whole(line)
	if err != nil {
		return nil
	}
	o, err := rawjson.ParseObject(line, s, "id", "method", "result", "error")
	if err != nil || o.Get("method").Present() || o.Get("error").Present() || !o.Get("result").Present() || !o.Get("id").Present() {
		return nil
	}
	r := &transport.JSONRPCResponse{JSONRPC: mcp.JSONRPC_VERSION, Result: o.Get("result").Of(line)}
	if json.Unmarshal(o.Get("id").Of(line), &r.ID) != nil {
		return nil
	}
	return r
}

// notice takes what the server tells unasked: how far a call is, and that it has other tools now.
func (w *wire) notice(method string, line []byte) {
	switch method {
	case "notifications/tools/list_changed":
		if w.changed != nil {
			w.changed()
		}
	case "notifications/progress":
		var m struct {
			Params struct {
				Token    string  `json:"progressToken"` // ours are strings
				Progress float64 `json:"progress"`
				Total    float64 `json:"total"`
				Message  string  `json:"message"`
			} `json:"params"`
		}
		if json.Unmarshal(line, &m) != nil {
			return
		}
		w.mu.Lock()
		tell := w.progress[m.Params.Token]
		w.mu.Unlock()
		if tell != nil {
			tell(m.Params.Progress, m.Params.Total, Shorten(m.Params.Message, maxMessage))
		}
	}
}

// onProgress has tell told of the progress of the call with a token, until the result is called.
func (w *wire) onProgress(token string, tell func(done, total float64, text string)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress[token] = tell
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.progress, token)
	}
}

// decline answers what the server asks of us: a ping, and nothing else.
func (w *wire) decline(id mcp.RequestId, method string) {
	answer := transport.NewJSONRPCErrorResponse(id, mcp.METHOD_NOT_FOUND, "there is no such method here", nil)
	if method == string(mcp.MethodPing) {
		answer = transport.NewJSONRPCResultResponse(id, json.RawMessage("{}"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), wireWrite)
	defer cancel()
	_ = w.send(ctx, answer) // a connection that takes no answer is ended by send
}

// line reads one line without its end, of at most MaxResult bytes and a little more for its envelope.
func (w *wire) line(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > MaxResult+1<<10 {
			return nil, &wireError{w.program + " gave a result of more than " + SizeText(MaxResult)}
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}
