package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/handlerd/handler/policy"
)

// RuleHeader names the rule in an answer that refuses (D.6).
const RuleHeader = "X-Handler-Rule"

const textKind = "text/plain; charset=utf-8"

// fail answers a request whose destination was not reached, and notes why.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d destination, f *failure) {
	f.gone = r.Context().Err() != nil && context.Cause(r.Context()) != errIdle
	s.note(d, f)
	a := f.answer(wantsJSON(r.Header))
	if r.Method == http.MethodConnect {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			defer conn.Close()
			writeAnswer(conn, a)
			return
		}
	}
	a.write(w)
}

func wantsJSON(h http.Header) bool { return strings.Contains(h.Get("Accept"), "application/json") }

// An answer is a refusal or an error as the agent reads it.
type answer struct {
	status int
	rule   string
	line   string // for the status line of a CONNECT, which is all that most clients show
	kind   string
	body   string
}

func (f *failure) answer(asJSON bool) answer {
	a := answer{status: f.status, rule: f.verdict.Rule, kind: textKind}
	text := "handler: " + f.text
	a.line = f.text
	if f.verdict.Action == policy.Refuse {
		text = f.verdict.String()
		a.line = "refused by " + f.verdict.Rule + ": " + f.verdict.Reason
	}
	a.body = text + "\n"
	if !asJSON {
		return a
	}
	fields := map[string]string{"error": "unreachable", "message": text}
	if f.verdict.Action == policy.Refuse {
		fields = map[string]string{
			"error": "refused", "rule": f.verdict.Rule, "reason": f.verdict.Reason, "hint": f.verdict.Hint, "message": text,
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return a // a map of strings always marshals
	}
	a.kind, a.body = "application/json", string(b)+"\n"
	return a
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if a.rule != "" {
		h.Set(RuleHeader, a.rule)
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

// writeAnswer answers a CONNECT by hand: clients show the reason phrase of a refused tunnel, and seldom its body. The
// connection is of no use after it.
func writeAnswer(conn net.Conn, a answer) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n",
		a.status, phrase(a.line), a.kind, len(a.body))
	if a.rule != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", RuleHeader, a.rule)
	}
	b.WriteString("\r\n" + a.body)
	conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	conn.Write([]byte(b.String()))
}

// phrase makes a text fit for a status line: printable ASCII, bounded.
func phrase(s string) string {
	const limit = 400
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r < ' ' || r > '~' {
			r = '?'
		}
		b = append(b, byte(r))
	}
	return string(b[:min(len(b), limit)])
}
