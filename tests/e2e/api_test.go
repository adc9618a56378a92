package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/handlerd/handler/handlerd/api/types"
)

// eventLimit bounds the wait for one event of a session: the model and the browser may be in it.
const eventLimit = 60 * time.Second

// The scripts' own client of the API, so that what curl would do is what is tested:
//
//	api METHOD PATH [FILE [HEADER…]]   sends FILE, with the script's variables in place of ${NAME}; the answer is stdout. "!"
//	                                   before it wants a status of 400 or more.
//	api-event SESSION COND…            waits for the next event of a session that meets every condition: one behind the
//	                                   last that was waited for.
func (s *suite) apiClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.runtime, "handler/handlerd.sock"))
		},
	}}
}

func cmdAPI(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: api METHOD PATH [FILE [HEADER…]]")
	}
	var body []byte
	if len(args) > 2 {
		text := ts.ReadFile(args[2])
		body = []byte(variable.ReplaceAllStringFunc(text, func(m string) string { return ts.Getenv(m[2 : len(m)-1]) }))
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0], "http://handlerd"+args[1], bytes.NewReader(body))
	ts.Check(err)
	for _, header := range args[min(len(args), 3):] {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := of(ts).apiClient().Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if neg != (resp.StatusCode >= 400) {
		ts.Fatalf("%s %s was answered %s", args[0], args[1], resp.Status)
	}
}

func cmdAPIEvent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: api-event SESSION COND…")
	}
	conds, s := parseConds(ts, args[1:]), of(ts)
	ctx, cancel := context.WithTimeout(context.Background(), eventLimit)
	defer cancel()
	path := fmt.Sprintf("http://handlerd%s/%s/events?follow=1&after=%d", types.PathSessions, args[0], s.seen[args[0]])
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	ts.Check(err)
	resp, err := s.apiClient().Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	var passed []string
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			ts.Fatalf("no such event: %v; what came:\n%s", err, strings.Join(passed, "\n"))
		}
		var e types.Event
		ts.Check(json.Unmarshal(line, &e))
		if vars, err := conds.match(line); err == nil {
			setAll(ts, vars)
			if s.seen == nil {
				s.seen = map[string]int64{}
			}
			s.seen[args[0]] = e.Seq
			return
		}
		passed = append(passed, string(clip(bytes.TrimSpace(line))))
	}
}
