package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A server is an HTTP server on 127.0.0.1 outside every sandbox: what an agent reaches only by a rule. It serves
// a folder, and besides:
//
//	/echo           the request, as it came
//	/redirect?to=U  302 to U
//	/status/CODE    that status
//	/slow           headers, then a byte a second, for ever
type server struct {
	http *httptest.Server

	mu  sync.Mutex
	saw []string // protected by mu; "METHOD PATH" and a line a header
}

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: serve NAME [DIR]")
	}
	files := http.NotFoundHandler()
	if len(args) == 2 {
		files = http.FileServer(http.Dir(ts.MkAbs(args[1])))
	}
	srv := &server{}
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/slow", slow)
	srv.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var head strings.Builder
		_ = r.Header.Write(&head) // a Builder does not fail
		srv.mu.Lock()
		srv.saw = append(srv.saw, r.Method+" "+r.URL.RequestURI()+"\n"+strings.ReplaceAll(head.String(), "\r", ""))
		srv.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	of(ts).servers[args[0]] = srv
	ts.Defer(func() { srv.http.CloseClientConnections(); srv.http.Close() })
	address := strings.TrimPrefix(srv.http.URL, "http://")
	ts.Setenv(args[0], address)
	ts.Setenv(args[0]+"_PORT", address[strings.LastIndexByte(address, ':')+1:])
}

func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s\nHost: %s\n", r.Method, r.URL.RequestURI(), r.Host)
	_ = r.Header.Write(w) // the client may be gone
}

func slow(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fmt.Fprint(w, ".")
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// cmdServedSoon waits for a request of another's.
func cmdServedSoon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || of(ts).servers[args[0]] == nil {
		ts.Fatalf("usage: served-soon NAME REGEXP, for a NAME of serve")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	srv := of(ts).servers[args[0]]
	if !within(30*time.Second, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return slices.ContainsFunc(srv.saw, re.MatchString)
	}) {
		ts.Fatalf("it saw no such request in 30 s")
	}
}

func cmdServed(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || of(ts).servers[args[0]] == nil {
		ts.Fatalf("usage: served NAME REGEXP, for a NAME of serve")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	srv := of(ts).servers[args[0]]
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, request := range srv.saw {
		if re.MatchString(request) {
			if neg {
				ts.Fatalf("it saw %s", request)
			}
			return
		}
	}
	if !neg {
		ts.Fatalf("it saw no such request, but %q", srv.saw)
	}
}
