// Package client is the Go client of handlerd's API: for the command line, the page's server and tests. It knows the
// socket and nothing of what is behind it.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// A Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New makes a client of the daemon behind the unix socket. Nothing is dialled yet.
func New(socket string) *Client {
	c := &Client{socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableKeepAlives: true, // a command makes one or two requests: idle connections would only keep the daemon awake
	}}
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", c.socket)
}

// NotRunning tells whether err means that no daemon listens: the socket is not there, or nobody is behind it.
func NotRunning(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Version asks which daemon answers.
func (c *Client) Version(ctx context.Context) (types.Version, error) {
	var v types.Version
	return v, c.get(ctx, types.PathVersion, &v)
}

// Runs lists the runs.
func (c *Client) Runs(ctx context.Context) ([]types.Run, error) {
	var v []types.Run
	return v, c.get(ctx, types.PathRuns, &v)
}

// Run returns the run whose id begins with id.
func (c *Client) Run(ctx context.Context, id string) (types.Run, error) {
	var v types.Run
	return v, c.get(ctx, types.PathRuns+"/"+url.PathEscape(id), &v)
}

// Kill ends a run and returns when nothing of it is left.
func (c *Client) Kill(ctx context.Context, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, types.PathRuns+"/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Log calls line for each line of a run's log, also of one that has ended; with follow until the run ends.
func (c *Client) Log(ctx context.Context, id string, follow bool, line func(types.LogLine) error) error {
	path := types.PathRuns + "/" + url.PathEscape(id) + "/log"
	if follow {
		path += "?follow=1"
	}
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return eachLine(resp.Body, line)
}

// Images lists the toolboxes, addons and harnesses with their state.
func (c *Client) Images(ctx context.Context) ([]types.Image, error) {
	var v []types.Image
	return v, c.get(ctx, types.PathImages, &v)
}

// Build builds or checks an image and calls progress for every step; it returns the build's error.
func (c *Client) Build(ctx context.Context, req types.BuildRequest, progress func(types.Progress)) error {
	resp, err := c.do(ctx, http.MethodPost, types.PathBuild, req)
	if err != nil {
		return err
	}
	var failed *types.Error
	done := false
	err = eachLine(resp.Body, func(p types.Progress) error {
		progress(p)
		done = done || p.Done != ""
		failed = p.Error
		return nil
	})
	switch {
	case failed != nil:
		return failed.Fault()
	case err != nil:
		return err
	case !done:
		return fault.New(fault.Failed, "handler doctor", "handlerd ended before the build did")
	}
	return nil
}

// Remove removes an image.
func (c *Client) Remove(ctx context.Context, req types.BuildRequest) error {
	resp, err := c.do(ctx, http.MethodPost, types.PathRemove, req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Doctor asks for every prerequisite's state.
func (c *Client) Doctor(ctx context.Context) ([]types.Finding, error) {
	var v []types.Finding
	return v, c.get(ctx, types.PathDoctor, &v)
}

// Stop ends the daemon and its runs; it returns when the daemon has said that it will.
func (c *Client) Stop(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodPost, types.PathStop, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// A Stream is the ACP connection of a run. Reads are what the agent says; Close ends the run.
type Stream struct {
	*net.UnixConn
	RunID string
	read  *bufio.Reader
}

// Read reads what the agent says.
func (s *Stream) Read(p []byte) (int, error) {
	if s.read.Buffered() > 0 {
		return s.read.Read(p)
	}
	return s.UnixConn.Read(p)
}

// WriteTo copies everything the agent says to w, through the kernel where w allows it.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	n, err := io.CopyN(w, s.read, int64(s.read.Buffered()))
	if err != nil {
		return n, err
	}
	m, err := io.Copy(w, s.UnixConn)
	return n + m, err
}

// Start starts a run and returns its connection. The run ends with the connection, or when ctx is done before the
// sandbox stands.
func (c *Client) Start(ctx context.Context, req types.RunRequest) (*Stream, error) {
	return c.upgrade(ctx, types.PathRuns, types.UpgradeACP, req)
}

// upgrade posts a request and takes the connection over; until then it ends with ctx.
func (c *Client) upgrade(ctx context.Context, path, protocol string, req any) (*Stream, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	stream, err := upgrade(conn.(*net.UnixConn), path, protocol, req)
	if err != nil {
		conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	return stream, nil
}

func upgrade(conn *net.UnixConn, path, protocol string, req any) (*Stream, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, "http://handlerd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	read := bufio.NewReader(conn)
	resp, err := http.ReadResponse(read, r)
	if err != nil {
		return nil, fmt.Errorf("handlerd ended before the answer came: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return &Stream{UnixConn: conn, RunID: resp.Header.Get(types.HeaderRun), read: read}, nil
}

func (c *Client) get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

// do makes a request; its answer is a success whose body the caller closes.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	return c.send(ctx, method, path, body, nil)
}

// send is do with further headers.
func (c *Client) send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://handlerd"+path, r)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

func readError(resp *http.Response) error {
	var e types.Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil || e.Message == "" {
		return fault.New(fault.Failed, "handler daemon stop, then try again", "handlerd answered %s", resp.Status)
	}
	return e.Fault()
}

// eachLine decodes a stream of JSON values and closes it.
func eachLine[T any](body io.ReadCloser, f func(T) error) error {
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		var v T
		if err := dec.Decode(&v); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
