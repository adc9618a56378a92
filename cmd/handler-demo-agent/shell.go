package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

const (
	maxOutput    = 64 << 10 // bytes of a command's output that are kept
	maxShown     = 8000     // bytes of it that are said in the chat
	runTimeout   = 10 * time.Minute
	fetchTimeout = time.Minute
	fetchBytes   = 2048 // of a body
)

// runCommand is the step "run": a shell command in the session's folder, as real agents' shell tools do it.
func (t *turn) runCommand(command string) error {
	c := t.newCall("run: "+command, "run", jsonrpc.KindExecute, map[string]string{"command": command})
	if err := c.ask(); err != nil {
		c.finish(nil, err)
		return err
	}
	c.begin()
	ctx, cancel := context.WithTimeout(t.ctx, runTimeout)
	defer cancel()
	out := &boundedBuffer{max: maxOutput}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir = t.s.rec.Cwd
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	err := cmd.Run()
	t.s.leftBehind(cmd)
	switch {
	case t.ctx.Err() != nil:
		err = errors.New("cancelled")
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %s and was stopped", runTimeout)
	case errors.Is(err, exec.ErrWaitDelay): // it ended; something that it started still holds its output
		err = nil
	}
	text := out.String()
	var content []jsonrpc.ContentBlock
	if all := strings.Trim(text+"\n"+errorOf(err), "\n"); all != "" {
		content = append(content, jsonrpc.Text(all))
	}
	c.finish(content, err)
	if text = strings.TrimRight(text, "\n"); text != "" && t.ctx.Err() == nil {
		t.say(clip(text, maxShown) + "\n")
	}
	return err
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// leftBehind remembers a command whose background processes go on, such as a web server to look at: they end with
// the session.
func (s *session) leftBehind(cmd *exec.Cmd) {
	if cmd.Process == nil || syscall.Kill(-cmd.Process.Pid, 0) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, cmd.Process.Pid)
}

func (s *session) endLeftBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pgid := range s.groups {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
	s.groups = nil
}

// fetch is the step "fetch": one GET through the proxy of the environment. A refusal by the proxy is shown with the
// reason it gives.
func (t *turn) fetch(address string) error {
	c := t.newCall("fetch "+address, "fetch", jsonrpc.KindFetch, map[string]string{"url": address})
	c.begin()
	text, err := get(t.ctx, address)
	if err != nil {
		c.finish(nil, err)
		return err
	}
	c.finish([]jsonrpc.ContentBlock{jsonrpc.Text(text)}, nil)
	t.say(text + "\n")
	return nil
}

func get(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return "", errors.New("the address must begin with http:// or https://")
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, OnProxyConnectResponse: connectRefused, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, fetchBytes))
	if err != nil && len(body) == 0 {
		return "", fmt.Errorf("%s, then: %w", res.Status, err)
	}
	head := res.Status
	if ct := res.Header.Get("Content-Type"); ct != "" {
		head += " · " + ct
	}
	return strings.TrimSpace(head + "\n" + strings.ToValidUTF8(string(body), "�")), nil
}

// connectRefused gives the words with which a proxy refused a tunnel; net/http would give its status alone.
func connectRefused(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var body []byte
	if res.ContentLength > 0 {
		body, _ = io.ReadAll(io.LimitReader(res.Body, fetchBytes)) // what did not come is not said
	}
	return fmt.Errorf("the proxy answered %s %s", res.Status, bytes.TrimSpace(body))
}

// A boundedBuffer keeps the first max bytes and says how many there were. It may be written from two goroutines.
type boundedBuffer struct {
	max int

	mu   sync.Mutex
	buf  []byte
	lost int
}

// Write never fails: a command must not die of its own output.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.max-len(b.buf))
	b.buf = append(b.buf, p[:n]...)
	b.lost += len(p) - n
	return len(p), nil
}

// String gives what was kept, as valid UTF-8.
func (b *boundedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.ToValidUTF8(string(b.buf), "�")
	if b.lost > 0 {
		s += fmt.Sprintf("\n… (%d bytes more)\n", b.lost)
	}
	return s
}
