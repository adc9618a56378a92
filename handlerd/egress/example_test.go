package egress_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
)

// A run's way out is one Server on the run's egress.sock.
func Example() {
	rule, err := policy.ParseRule(policy.KindAllow, "*.example.org", "agent web")
	if err != nil {
		fmt.Println(err)
		return
	}
	network := policy.Network{Agent: "web", Rules: []policy.Rule{rule}}
	server, err := egress.New(egress.Options{
		Rules: func() policy.Network { return network },
		Audit: func(r egress.Record) { fmt.Println(r.Verdict) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "egress")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "egress.sock"))
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(conn, "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
	line := make([]byte, len("HTTP/1.1 403"))
	conn.Read(line)
	fmt.Println(string(line))
	conn.Close()
	server.Close()
	fmt.Println(<-served)
	// Output:
	// refused by D.4: evil.test is not allowed for agent "web" — allow it: handler policy allow web evil.test
	// HTTP/1.1 403
	// <nil>
}
