package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// originRole is a web server that costs as little as it can: GET /N gives N bytes and ends the connection. It prints
// its address.
func originRole([]string) error {
	endWithInput()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	zeros := make([]byte, 256<<10)
	return acceptAll(l, func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		head, err := readHead(in)
		if err != nil {
			return
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(head, "GET "), " ")
		n, err := strconv.ParseInt(path[strings.LastIndexByte(path, '/')+1:], 10, 64)
		if err != nil {
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", n)
		for n > 0 {
			wrote, err := conn.Write(zeros[:min(n, int64(len(zeros)))])
			if err != nil {
				return
			}
			n -= int64(wrote)
		}
	})
}

func acceptAll(l net.Listener, serve func(net.Conn)) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(conn)
	}
}

// readHead reads the head of a request, to its blank line.
func readHead(in *bufio.Reader) (string, error) {
	var head strings.Builder
	for head.Len() < 64<<10 {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String(), nil
		}
	}
	return "", errors.New("the head is too long")
}

// proxyRole is a proxy to the one origin: KIND is "egress", the run's proxy of handlerd, or "copy", which only copies.
// With GUEST it listens on egress.sock and the real guest is in front of it, as in a sandbox; otherwise on loopback. It
// prints where clients connect to.
//
//	proxy KIND ORIGIN [DIR GUEST]
func proxyRole(args []string) error {
	if len(args) != 2 && len(args) != 4 {
		return errors.New("it takes KIND ORIGIN [DIR GUEST]")
	}
	endWithInput()
	network, address := "tcp", "127.0.0.1:0"
	if len(args) == 4 {
		network, address = "unix", filepath.Join(args[2], sandbox.SocketEgress)
	}
	// As the run's socket: what keeps a TCP connection alive costs four calls, and a unix socket has none of it.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	address = l.Addr().String()
	if len(args) == 4 {
		if address, err = freeAddress(); err != nil {
			return err
		}
		// Without the daemon's sockets the guest only carries the proxy's connections; its command waits for our end.
		cmd := exec.Command(args[3], "init", "--run-dir", args[2], "--runtime-dir", "", "--proxy-addr", address, "--", "sleep", "86400")
		cmd.Stderr = os.Stderr
		if cmd.Stdin, err = os.Open(os.DevNull); err != nil {
			return err
		}
		endWithUs(cmd)
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := waitListening(address); err != nil {
			return err
		}
	}
	fmt.Println(address)
	if args[0] == "copy" {
		return acceptAll(l, copyProxy)
	}
	rule, err := policy.ParseRule(policy.KindPrivate, args[1], "bench")
	if err != nil {
		return err
	}
	rules := policy.Network{Agent: "bench", Rules: []policy.Rule{rule}}
	server, err := egress.New(egress.Options{Rules: func() policy.Network { return rules }})
	if err != nil {
		return err
	}
	return server.Serve(l)
}

// copyProxy carries one connection: it reads no more of a request than where it goes.
func copyProxy(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	head, err := readHead(in)
	if err != nil {
		return
	}
	method, rest, _ := strings.Cut(head, " ")
	uri, _, _ := strings.Cut(rest, " ")
	to, _, _ := strings.Cut(strings.TrimPrefix(uri, "http://"), "/")
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	if method == "CONNECT" {
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	} else {
		_, err = io.WriteString(up, head)
	}
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		early, _ := in.Peek(in.Buffered())
		_, _ = up.Write(early)
		_, _ = io.Copy(up, conn)
		_ = up.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(conn, up)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	wg.Wait()
}

// freeAddress gives an address of loopback that nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startTinyproxy starts Debian's tinyproxy and gives where it listens.
func startTinyproxy(b *bench, origin string) (*helper, error) {
	_, originPort, _ := net.SplitHostPort(origin)
	return startOther(b, "tinyproxy", []string{"-d", "-c"}, func(port string) string {
		return fmt.Sprintf("Port %s\nListen 127.0.0.1\nTimeout 600\nMaxClients 100\nAllow 127.0.0.1\nConnectPort %s\nLogLevel Critical\nLogFile %q\n",
			port, originPort, filepath.Join(b.dir, "tinyproxy.log"))
	})
}

// startSquid starts Debian's squid as a proxy that keeps nothing and writes no access log.
func startSquid(b *bench, _ string) (*helper, error) {
	return startOther(b, "squid", []string{"-N", "-f"}, func(port string) string {
		return fmt.Sprintf("http_port 127.0.0.1:%s\nhttp_access allow localhost\nhttp_access deny all\ncache deny all\ncache_mem 8 MB\n"+
			"access_log none\ncache_store_log none\ncache_log %s\npid_filename none\ncoredump_dir %s\nnetdb_filename none\n"+
			"pinger_enable off\nshutdown_lifetime 1 seconds\n", port, filepath.Join(b.dir, "squid.log"), b.dir)
	})
}

// startOther starts a proxy of the distribution's, whose arguments end with its configuration.
func startOther(b *bench, name string, args []string, conf func(port string) string) (*helper, error) {
	path, err := lookSbin(name)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	file := filepath.Join(b.dir, name+".conf")
	if err := os.WriteFile(file, []byte(conf(port)), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append(args, file)...)
	cmd.Stderr = os.Stderr
	endWithUs(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &helper{cmd: cmd, stdin: in, first: address}
	if err := waitListening(address); err != nil {
		return nil, errors.Join(err, h.kill())
	}
	return h, nil
}

// lookSbin finds a program on PATH or in /usr/sbin, which is not on an ordinary user's.
func lookSbin(name string) (string, error) {
	for _, path := range []string{name, filepath.Join("/usr/sbin", name)} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; hack/prepare bench installs it, as make bench does", name)
}
