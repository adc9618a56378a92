package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// raw does a file of the current folder as an agent's side of the protocol, for lines that no agent should write. The
// agent says what it saw; a line of the file is one of
//
//	> TEXT      TEXT and a newline
//	ask TEXT    the same, a request, and waits for the answer with the id that TEXT has, as it is spelled
//	read        waits for one line more
//	fill N TEXT TEXT and a newline, with N times x in place of @@
//	endless MIB so many MiB of one line that does not end, and then its end
//	wait        for a notification _x/go of the client's
func (a *agent) raw(session, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		a.say(session, "raw: %v", err)
		return
	}
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		rest = strings.ReplaceAll(rest, "SESSION", session)
		switch word {
		case ">":
			a.write("%s", rest)
		case "ask":
			a.write("%s", rest)
			a.answerTo(session, rest)
		case "read":
			if _, ok := a.next(); ok {
				a.say(session, "read: %s", a.lines[len(a.lines)-1])
			}
		case "wait":
			for {
				if m, ok := a.next(); !ok || m.Method == "_x/go" {
					break
				}
			}
		case "fill":
			n, text := 0, ""
			_, _ = fmt.Sscan(rest, &n) // 0 fills nothing
			_, text, _ = strings.Cut(rest, " ")
			a.write("%s", strings.ReplaceAll(text, "@@", strings.Repeat("x", n)))
		case "endless":
			n := 0
			_, _ = fmt.Sscan(rest, &n)
			for range n {
				_, _ = a.out.WriteString(strings.Repeat("z", 1<<20))
			}
			a.write("")
		}
	}
}

// answerTo waits for the answer to a request and says it.
func (a *agent) answerTo(session, request string) {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal([]byte(request), &m) // a request that is no JSON has the id null
	for {
		got, ok := a.next()
		if !ok {
			return
		}
		if got.Method == "" && (string(got.ID) == string(m.ID) || string(got.ID) == "null") {
			a.say(session, "answered: %s", a.lines[len(a.lines)-1])
			return
		}
	}
}

// imitations are what somebody who is not the guest would say on its sockets.
func imitations() []string {
	return []string{
		`{"kind":"hello","version":1}` + "\n", `{"kind":"hello","version":999}` + "\n", "", "\x00\x01\x02", strings.Repeat("A", 1<<20),
		`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}` + "\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	}
}

// storm connects to the daemon's sockets again and again, in every wrong way, and says what came of it.
func (a *agent) storm(session string, times int) {
	for _, name := range []string{"acp.sock", "guest.sock", "files.sock", "egress.sock"} {
		connected, answered := 0, 0
		var held []net.Conn
		for i := range times {
			c, err := net.DialTimeout("unix", "/run/handler/"+name, tries)
			if err != nil {
				continue
			}
			connected++
			_, _ = c.Write([]byte(imitations()[i%len(imitations())])) // refused is what it may be
			if name != "egress.sock" {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if n, _ := c.Read(make([]byte, 100)); n > 0 {
					answered++
				}
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
		a.say(session, "storm %s: %d connected, %d answered", name, connected, answered)
	}
}
