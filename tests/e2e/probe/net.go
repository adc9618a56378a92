package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tries bounds an attempt that may hang.
const tries = 4 * time.Second

// proxyAddr is where the guest listens (sandbox.ProxyAddr; spelled out, as an attacker knows it).
const proxyAddr = "127.0.0.1:3128"

func tryNet(targets []string) {
	for _, t := range targets {
		op, target, _ := strings.Cut(t, ":")
		result(t, tryOne(op, target))
	}
}

func tryOne(op, target string) error {
	switch op {
	case "tcp", "unix":
		c, err := net.DialTimeout(op, target, tries)
		if err != nil {
			return err
		}
		return c.Close()
	case "abstract":
		c, err := net.DialTimeout("unix", "@"+target, tries)
		if err != nil {
			return err
		}
		return c.Close()
	case "udp":
		c, err := net.DialTimeout("udp", target, tries)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	case "dns":
		ctx, cancel := context.WithTimeout(context.Background(), tries)
		defer cancel()
		_, err := net.DefaultResolver.LookupHost(ctx, target)
		return err
	case "rawdns":
		return rawDNS(target)
	case "icmp":
		c, err := net.Dial("ip4:icmp", target)
		if err != nil {
			return err
		}
		return c.Close()
	}
	return fmt.Errorf("unknown op %s", op)
}

// rawDNS asks a server for example.com without any library's help.
func rawDNS(server string) error {
	c, err := net.DialTimeout("udp", net.JoinHostPort(server, "53"), tries)
	if err != nil {
		return err
	}
	defer c.Close()
	query := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
	if _, err := c.Write([]byte(query)); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(tries)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 512))
	return err
}

// get prints status, rule and body of each answer.
func get(urls []string) {
	proxyURL := &url.URL{Scheme: "http", Host: proxyAddr}
	tr := &http.Transport{
		Proxy: http.ProxyURL(proxyURL), DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // an attacker does not care who answers
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			body, _ := io.ReadAll(io.LimitReader(res.Body, 2000)) // what did not come is not said
			return errors.New(res.Status + " [" + res.Header.Get("X-Handler-Rule") + "] " + strings.TrimSpace(string(body)))
		},
	}
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	for _, u := range urls {
		res, err := client.Get(u)
		if err != nil {
			fmt.Printf("get %s: failed: %v\n", u, err)
			continue
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, 2000))
		res.Body.Close()
		fmt.Printf("get %s: %s [%s] %s %v\n", u, res.Status, res.Header.Get("X-Handler-Rule"), strings.TrimSpace(string(body)), err)
	}
}

// hold reads each answer for as long as it goes on.
func hold(urls []string) {
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxyAddr}), DisableKeepAlives: true}}
	for _, u := range urls {
		res, err := client.Get(u)
		if err != nil {
			fmt.Printf("hold %s: failed: %v\n", u, err)
			continue
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		fmt.Printf("hold %s: %s; %d bytes, then %v\n", u, res.Status, n, err)
	}
}

func proxy(raws []string) {
	for _, raw := range raws {
		text, err := strconv.Unquote(raw)
		if err != nil {
			fmt.Printf("proxy %s: not a Go string\n", raw)
			continue
		}
		fmt.Printf("proxy %.120q: ", text)
		answer, err := sendRaw(text)
		first, _, _ := strings.Cut(answer, "\r\n\r\n")
		line, _, _ := strings.Cut(first, "\r\n")
		fmt.Printf("%q %v\n", line, err)
	}
}

func sendRaw(text string) (string, error) {
	c, err := net.DialTimeout("tcp", proxyAddr, tries)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(tries)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err == io.EOF {
		err = nil
	}
	return string(buf[:n]), err
}

// drip sends headers of each kind a byte at a time, all kinds at once, and says how many seconds they were borne with.
func drip(args []string) {
	var wg sync.WaitGroup
	for _, kind := range args[1:] {
		wg.Go(func() { dripOne(args[0], kind) })
	}
	wg.Wait()
}

func dripOne(addr, kind string) {
	c, err := net.DialTimeout("tcp", addr, tries)
	if err != nil {
		fmt.Printf("drip %s: %v\n", kind, err)
		return
	}
	defer c.Close()
	text := map[string]string{
		"CONNECT": "CONNECT unnamed.example.com:443 HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 100),
		"GET":     "GET http://unnamed.example.com/ HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 100),
	}[kind]
	began := time.Now()
	for time.Since(began) < time.Minute {
		if text != "" {
			if _, err := io.WriteString(c, text[:1]); err != nil {
				break
			}
			text = text[1:]
		}
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		var t net.Error
		if _, err := c.Read(make([]byte, 100)); err != nil && !(errors.As(err, &t) && t.Timeout()) {
			break
		}
	}
	fmt.Printf("drip %s: cut after %.0f s\n", kind, time.Since(began).Seconds())
}

// flood holds as many connections to a socket as it gets.
func flood(args []string) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		fmt.Println(err)
		return
	}
	network := "unix"
	if strings.Contains(args[0], ":") {
		network = "tcp"
	}
	var conns []net.Conn
	var last error
	for range n {
		c, err := net.DialTimeout(network, args[0], tries)
		if err != nil {
			last = err
			break
		}
		conns = append(conns, c)
	}
	open := 0
	for _, c := range conns {
		// One that was taken and closed at once is not held.
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			var t net.Error
			if errors.As(err, &t) && t.Timeout() {
				open++
			}
		}
	}
	fmt.Printf("flood %s: %d connected, %d still open, %v\n", args[0], len(conns), open, last)
	for _, c := range conns {
		c.Close()
	}
}
