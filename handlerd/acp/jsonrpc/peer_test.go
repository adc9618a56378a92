package jsonrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair gives two peers that talk to each other.
func pair(t *testing.T, a, b Options) (*Peer, *Peer) {
	t.Helper()
	c1, c2 := net.Pipe()
	pa, pb := New(t.Context(), c1, a), New(t.Context(), c2, b)
	t.Cleanup(func() { pa.Close(); pb.Close() })
	return pa, pb
}

// raw gives a peer and the bare other end of its connection, line by line.
func raw(t *testing.T, opts Options) (*Peer, *rawEnd) {
	t.Helper()
	c1, c2 := net.Pipe()
	p := New(t.Context(), c1, opts)
	t.Cleanup(func() { c2.Close(); p.Close() })
	return p, &rawEnd{t: t, c: c2, r: bufio.NewReader(c2)}
}

type rawEnd struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func (e *rawEnd) write(s string) {
	e.t.Helper()
	if _, err := io.WriteString(e.c, s); err != nil {
		e.t.Fatal(err)
	}
}

func (e *rawEnd) line() string {
	e.t.Helper()
	e.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	s, err := e.r.ReadString('\n')
	if err != nil {
		e.t.Fatal(err)
	}
	return strings.TrimSuffix(s, "\n")
}

func TestCall(t *testing.T) {
	client, _ := pair(t, Options{}, Options{Handler: func(_ context.Context, r *Request) {
		switch r.Method {
		case "echo":
			r.Reply(r.Params)
		case "nothing":
			r.Reply(nil)
		default:
			r.Refuse(&Error{Code: 7, Message: "no", Data: json.RawMessage(`{"rule":"P3"}`)})
		}
	}})
	var got map[string]int
	if err := client.Call(t.Context(), "echo", map[string]int{"a": 1}, &got); err != nil || got["a"] != 1 {
		t.Errorf("echo gave %v, %v", got, err)
	}
	if err := client.Call(t.Context(), "nothing", nil, &got); err != nil {
		t.Error(err)
	}
	err := client.Call(t.Context(), "other", nil, nil)
	want := &Error{Code: 7, Message: "no", Data: json.RawMessage(`{"rule":"P3"}`)}
	if e, ok := errors.AsType[*Error](err); !ok || cmp.Diff(want, e) != "" {
		t.Errorf("other gave %v", err)
	}
}

// An update must be handled before the answer that followed it, and never overtake another one.
func TestOrder(t *testing.T) {
	const n = 2000
	var mu sync.Mutex
	var seen []int
	client, _ := pair(t, Options{Handler: func(_ context.Context, r *Request) {
		var i int
		if err := r.Decode(&i); err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen = append(seen, i)
		mu.Unlock()
	}}, Options{Handler: func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) (any, error) {
			for i := range n {
				if err := r.peer.Notify(ctx, "n", i); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
	}})
	if err := client.Call(t.Context(), "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != n {
		t.Fatalf("%d of %d notifications before the answer", len(seen), n)
	}
	for i, v := range seen {
		if i != v {
			t.Fatalf("notification %d came at place %d", v, i)
		}
	}
}

func TestIDsAreKeptAsWritten(t *testing.T) {
	_, e := raw(t, Options{Handler: func(_ context.Context, r *Request) { r.Reply(1) }})
	for _, id := range []string{`0`, `-1`, `1.50`, `"1"`, `"a\u0041"`, `null`, `12345678901234567890`} {
		e.write(`{"id":` + id + `,"method":"m","jsonrpc":"2.0"}` + "\r\n")
		if got, want := e.line(), `{"jsonrpc":"2.0","id":`+id+`,"result":1}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestGarbage(t *testing.T) {
	_, e := raw(t, Options{MaxLine: 200})
	for _, c := range []struct{ in, id, text string }{
		{"Starting…", "null", "not JSON"},
		{`{"jsonrpc":"2.0","id":1,"method":"a"`, "null", "not JSON"},
		{"\xff\xfe", "null", "UTF-8"},
		{`[{"jsonrpc":"2.0","id":1,"method":"a"}]`, "null", "batches"},
		{`"text"`, "null", "not a JSON object"},
		{`{}`, "null", "neither method nor result"},
		{`{"jsonrpc":"2.0","id":{},"method":"a"}`, "null", "an id must be"},
		{`{"jsonrpc":"2.0","id":[1],"method":"a"}`, "null", "an id must be"},
		{`{"jsonrpc":"2.0","id":2,"method":5}`, "2", "method must be"},
		{`{"jsonrpc":"1.0","id":3,"method":"a"}`, "3", "jsonrpc must be"},
		{`{"jsonrpc":"2.0","id":4,"METHOD":"a"}`, "4", "neither method"},
		{`{"jsonrpc":"2.0","id":5,"method":"a"}`, "5", `no method \"a\"`},
		{`{"jsonrpc":"2.0","id":6,"method":"a","params":"` + strings.Repeat("x", 300) + `"}`, "6", "longer than 200"},
		{strings.Repeat("y", 300000), "null", "longer than 200"},
	} {
		e.write("\n" + c.in + "\n")
		got := e.line()
		if !strings.Contains(got, `"id":`+c.id+`,"error"`) || !strings.Contains(got, c.text) {
			t.Errorf("%.60s was answered with %s", c.in, got)
		}
	}
}

func TestGarbageHandler(t *testing.T) {
	got := make(chan string, 1)
	_, e := raw(t, Options{Garbage: func(line []byte, why *Error) { got <- string(line) + " " + fmt.Sprint(why.Code) }})
	e.write("npm warn deprecated\n")
	if s := <-got; s != "npm warn deprecated -32700" {
		t.Errorf("got %q", s)
	}
}

func TestAnswersToNothingAreDropped(t *testing.T) {
	p, e := raw(t, Options{})
	done := make(chan error)
	go func() { done <- p.Call(t.Context(), "m", nil, nil) }()
	e.line()
	e.write(`{"jsonrpc":"2.0","id":99,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":"0","result":{}}` + "\n")
	select {
	case err := <-done:
		t.Fatalf("answered by a wrong id: %v", err)
	default:
	}
	e.write(`{"jsonrpc":"2.0","id":0,"result":null}` + "\n")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An answer that was too long must fail its call, whether its id came first or last.
func TestLongAnswer(t *testing.T) {
	long := `"` + strings.Repeat("x", 200000) + `"`
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":0,"result":` + long + "}\n",
		`{"jsonrpc":"2.0","result":` + long + `,"id":0}` + "\n",
	} {
		p, e := raw(t, Options{MaxLine: 1000})
		done := make(chan error)
		go func() { done <- p.Call(t.Context(), "m", nil, nil) }()
		e.line()
		e.write(line)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "longer than 1000") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCancel(t *testing.T) {
	started := make(chan struct{})
	var p *Peer
	p, server := pair(t, Options{}, Options{Handler: func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) (any, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if err := p.Call(ctx, "wait", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

func TestCancelIsAnswered(t *testing.T) {
	_, e := raw(t, Options{Handler: func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	}})
	e.write(`{"jsonrpc":"2.0","id":"x","method":"m"}` + "\n" + `{"jsonrpc":"2.0","id":"x","method":"m"}` + "\n")
	if got := e.line(); !strings.Contains(got, "is being worked on already") {
		t.Errorf("the same id twice was answered with %s", got)
	}
	e.write(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}` + "\n")
	if got := e.line(); !strings.Contains(got, `"id":"x","error":{"code":-32800`) {
		t.Errorf("got %s", got)
	}
}

func TestBounds(t *testing.T) {
	p, e := raw(t, Options{MaxPending: 1, MaxServing: 1, Handler: func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	}})
	done := make(chan error)
	go func() { done <- p.Call(t.Context(), "m", nil, nil) }()
	e.line()
	if err := p.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrTooManyPending) {
		t.Errorf("a call over the bound gave %v", err)
	}
	e.write(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"m"}` + "\n")
	if got := e.line(); !strings.Contains(got, `"id":2,"error"`) {
		t.Errorf("a request over the bound was answered with %s", got)
	}
	e.write(`{"jsonrpc":"2.0","id":0,"result":{}}` + "\n")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOtherEndGone(t *testing.T) {
	for _, half := range []string{"", `{"jsonrpc":"2.0","id":0,"result":{}}`} {
		p, e := raw(t, Options{})
		done := make(chan error)
		go func() { done <- p.Call(t.Context(), "m", nil, nil) }()
		e.line()
		e.write(half)
		e.c.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("the call gave %v", err)
		}
		<-p.Done()
		if err := p.Err(); (half == "") != (err == nil) {
			t.Errorf("after %q: %v", half, err)
		}
	}
}

func TestClose(t *testing.T) {
	p, e := raw(t, Options{})
	if err := p.Notify(t.Context(), "last", nil); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- p.Close() }()
	if got := e.line(); !strings.Contains(got, "last") {
		t.Errorf("what was queued did not go out: %s", got)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Notify(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := p.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestMessagesOverTheWire(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{Text(""), `{"type":"text","text":""}`},
		{ContentBlock{Type: BlockImage, Data: "AA==", MimeType: "image/png"}, `{"type":"image","data":"AA==","mimeType":"image/png"}`},
		{MCPServer{Name: "a", Command: "b"}, `{"name":"a","command":"b","args":[],"env":[]}`},
		{MCPServer{Type: "http", Name: "a", URL: "u"}, `{"type":"http","name":"a","url":"u","headers":[]}`},
		{NewSessionParams{Cwd: "/", MCPServers: []MCPServer{}}, `{"cwd":"/","mcpServers":[]}`},
		{Cancelled(), `{"outcome":{"outcome":"cancelled"}}`},
		{Selected("x"), `{"outcome":{"outcome":"selected","optionId":"x"}}`},
	} {
		b, err := json.Marshal(c.v)
		if err != nil || string(b) != c.want {
			t.Errorf("got %s, %v, want %s", b, err, c.want)
		}
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`))
	f.Add([]byte(`{"result":`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, bad := parse(line)
		if bad == nil && m.method == "" && m.fault == nil && m.id == nil {
			t.Errorf("%q is neither refused nor a message", line)
		}
		if _, id, _ := peekEnvelope(line); id != nil && !json.Valid(id) {
			t.Errorf("the id %q of %q is not JSON", id, line)
		}
	})
}
