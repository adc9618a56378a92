package main

import (
	"io"
	"net"
	"strconv"
	"time"

	"github.com/handlerd/handler/sandbox/duplex"
)

// Bounds of the way to the proxy.
const (
	maxProxyConns = 512 // beyond, a clean refusal
	maxRefusals   = 64  // refusals at one time; beyond, connections are just closed
	refusalTime   = time.Second
)

// serveProxy joins every connection that l accepts to the socket at path. It ends with the guest.
func serveProxy(l net.Listener, path string) {
	slots := make(chan struct{}, maxProxyConns)
	refusals := make(chan struct{}, maxRefusals)
	for {
		conn, err := l.Accept()
		if err != nil { // no descriptors left, or the like: some will come back
			time.Sleep(50 * time.Millisecond)
			continue
		}
		c := conn.(*net.TCPConn)
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				proxyConn(c, path)
			}()
			continue
		default:
		}
		select {
		case refusals <- struct{}{}:
			go func() {
				defer func() { <-refusals }()
				refuse(c, "the sandbox has "+strconv.Itoa(maxProxyConns)+" proxy connections open, the most it can have; close some and try again\n")
			}()
		default:
			_ = c.Close()
		}
	}
}

// proxyConn carries one connection, both ways, each way's end on its own.
func proxyConn(c *net.TCPConn, path string) {
	out, err := net.DialTimeout("unix", path, dialTime)
	if err != nil {
		refuse(c, "Handler's proxy is not there: this sandbox has no network now\n")
		return
	}
	duplex.Join(c, out.(*net.UnixConn))
}

// refuse answers 503. It takes what the client has sent for a moment, since closing over unread bytes would reset
// the connection and lose the answer.
func refuse(c *net.TCPConn, text string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(refusalTime))
	_, err := io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: "+strconv.Itoa(len(text))+"\r\nConnection: close\r\n\r\n"+text)
	if err != nil || c.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, 64<<10)
}
