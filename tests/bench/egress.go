package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// measureEgress holds a run's proxy against tinyproxy, squid and a proxy that only copies: client – loopback – proxy –
// loopback – origin, each a process of its own; and once more with the guest in front, as a sandbox has it.
func measureEgress(ctx context.Context, b *bench) (err error) {
	var open []*helper
	defer func() {
		for _, h := range open {
			err = errors.Join(err, h.kill())
		}
	}()
	keep := func(h *helper, err error) (string, error) {
		if err != nil {
			return "", err
		}
		open = append(open, h)
		return h.first, nil
	}
	origin, err := keep(startRole("origin"))
	if err != nil {
		return err
	}
	var p proxies
	p.origin = origin
	for _, start := range []struct {
		into *string
		how  func() (*helper, error)
	}{
		{&p.egress, func() (*helper, error) { return startRole("proxy", "egress", origin) }},
		{&p.tinyproxy, func() (*helper, error) { return startTinyproxy(b, origin) }},
		{&p.squid, func() (*helper, error) { return startSquid(b, origin) }},
		{&p.bare, func() (*helper, error) { return startRole("proxy", "copy", origin) }},
		{&p.inside, func() (*helper, error) { return startBehindGuest(b, "egress", origin) }},
		{&p.bareInside, func() (*helper, error) { return startBehindGuest(b, "copy", origin) }},
	} {
		if *start.into, err = keep(start.how()); err != nil {
			return err
		}
	}
	for _, measure := range []func(context.Context, *bench) error{p.throughput, p.connections, p.setUp} {
		if err := measure(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func startBehindGuest(b *bench, kind, origin string) (*helper, error) {
	dir, err := os.MkdirTemp(b.dir, "p")
	if err != nil {
		return nil, err
	}
	return startRole("proxy", kind, origin, dir, filepath.Join(b.bin, "handler-guest"))
}

// proxies are the addresses of what is compared.
type proxies struct{ origin, egress, tinyproxy, squid, bare, inside, bareInside string }

// others are what the run's proxy is compared with, and where the guest makes no difference.
func (p proxies) others() []string { return []string{p.egress, p.tinyproxy, p.squid, p.bare} }

// A fetch gets n bytes of the origin through a proxy.
type fetch func(ctx context.Context, proxy, origin string, n int64) error

// throughput is one long answer.
func (p proxies) throughput(ctx context.Context, b *bench) error {
	n := int64(b.times(512, 64)) << 20
	through := func(f fetch, proxy string) contender {
		return contender{func(ctx context.Context) (float64, error) {
			began := time.Now()
			if err := f(ctx, proxy, p.origin, n); err != nil {
				return 0, err
			}
			return rate(n, time.Since(began)), nil
		}}
	}
	for _, way := range []struct {
		what  string
		fetch fetch
		least target // against a bare copy
	}{{"a CONNECT tunnel", tunnelled, atLeast(0.9)}, {"a plain GET", plain, target{}}} {
		var all []contender
		for _, proxy := range append(p.others(), p.inside, p.bareInside) {
			all = append(all, through(way.fetch, proxy))
		}
		values, err := turns(ctx, b.times(9, 3), all...)
		if err != nil {
			return fmt.Errorf("%s: %w", way.what, err)
		}
		b.report.compare("egress: throughput of "+way.what, "MB/s", values[:4], way.least)
		b.report.add(row{
			Group: "egress", What: "egress: the same through the guest, against a bare copy", Figure: ratio(values[4], values[5]), Unit: "×",
			Numbers: []number{{"egress", median(values[4]), "MB/s"}, {"copy", median(values[5]), "MB/s"}},
		})
	}
	return nil
}

// connections is how many connections a second are opened, used for one short answer, and closed.
func (p proxies) connections(ctx context.Context, b *bench) error {
	const workers = 8
	n := int64(b.times(1500, 300))
	through := func(f fetch, proxy string) contender {
		return contender{func(ctx context.Context) (float64, error) {
			var left atomic.Int64
			left.Store(n)
			errs := make([]error, workers)
			var wg sync.WaitGroup
			began := time.Now()
			for i := range workers {
				wg.Go(func() {
					for left.Add(-1) >= 0 && errs[i] == nil {
						errs[i] = f(ctx, proxy, p.origin, 2)
					}
				})
			}
			wg.Wait()
			return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
		}}
	}
	for _, way := range []struct {
		what  string
		fetch fetch
	}{{"CONNECT", tunnelled}, {"GET", plain}} {
		var all []contender
		for _, proxy := range p.others() {
			all = append(all, through(way.fetch, proxy))
		}
		values, err := turns(ctx, b.times(9, 3), all...)
		if err != nil {
			return fmt.Errorf("connections by %s: %w", way.what, err)
		}
		b.report.compare("egress: connections a second, "+way.what, "/s", values, target{})
	}
	return nil
}

// setUp is what a tunnel takes until it stands, beyond what connecting to its server takes anyway: one at a time, so
// that nothing waits for its turn.
func (p proxies) setUp(ctx context.Context, b *bench) error {
	n := b.times(1000, 200)
	each := func(to string, stand func(net.Conn) error) contender {
		return contender{func(ctx context.Context) (float64, error) {
			var all []float64
			for range n {
				began := time.Now()
				if err := talk(ctx, to, stand); err != nil {
					return 0, err
				}
				all = append(all, microseconds(time.Since(began)))
			}
			return median(all), nil
		}}
	}
	tunnel := func(conn net.Conn) error { return openTunnel(bufio.NewReader(conn), conn, p.origin) }
	values, err := turns(ctx, b.times(9, 3), each(p.egress, tunnel), each(p.origin, func(net.Conn) error { return nil }))
	if err != nil {
		return fmt.Errorf("setting a tunnel up: %w", err)
	}
	b.report.add(row{
		Group: "egress", What: "egress: setting a tunnel up, beyond connecting to its server, median", Figure: minus(values[0], values[1]), Unit: "µs",
		Target: atMost(150), Numbers: []number{{"through egress", median(values[0]), "µs"}, {"connecting alone", median(values[1]), "µs"}},
	})
	return nil
}

// compare adds the rows of a comparison with others; the last of them is the bare copy, which has a target.
func (r *report) compare(what, unit string, values [][]float64, bare target) {
	for i, than := range []struct {
		name  string
		least target
	}{{"tinyproxy", atLeast(1)}, {"squid", atLeast(1)}, {"copy", bare}} {
		r.add(row{
			Group: "egress", What: what + ", against " + than.name, Figure: ratio(values[0], values[i+1]), Unit: "×", Target: than.least,
			Numbers: []number{{"egress", median(values[0]), unit}, {than.name, median(values[i+1]), unit}},
		})
	}
}

// fetchTime bounds one answer.
const fetchTime = 2 * time.Minute

// tunnelled fetches through a CONNECT tunnel.
func tunnelled(ctx context.Context, proxy, origin string, n int64) error {
	return talk(ctx, proxy, func(conn net.Conn) error {
		in := bufio.NewReader(conn)
		if err := openTunnel(in, conn, origin); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", n, origin); err != nil {
			return err
		}
		return wantBody(in, n)
	})
}

// openTunnel asks for a tunnel and reads that it stands.
func openTunnel(in *bufio.Reader, conn net.Conn, origin string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", origin, origin); err != nil {
		return err
	}
	return wantOK(in)
}

// plain fetches with a request for the whole URL.
func plain(ctx context.Context, proxy, origin string, n int64) error {
	return talk(ctx, proxy, func(conn net.Conn) error {
		if _, err := fmt.Fprintf(conn, "GET http://%s/%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", origin, n, origin); err != nil {
			return err
		}
		return wantBody(bufio.NewReader(conn), n)
	})
}

func talk(ctx context.Context, proxy string, f func(net.Conn) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", proxy)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer until(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(fetchTime)); err != nil {
		return err
	}
	return f(conn)
}

func wantOK(in *bufio.Reader) error {
	head, err := readHead(in)
	if err != nil {
		return err
	}
	if _, status, _ := strings.Cut(head, " "); !strings.HasPrefix(status, "200 ") {
		line, _, _ := strings.Cut(head, "\r\n")
		return fmt.Errorf("the proxy answered %q", line)
	}
	return nil
}

// wantBody reads an answer with a body of n bytes.
func wantBody(in *bufio.Reader, n int64) error {
	if err := wantOK(in); err != nil {
		return err
	}
	// Discard reads in pieces of the reader's own small buffer; this takes as much as comes.
	buf := make([]byte, min(n, 256<<10))
	for left := n; left > 0; {
		got, err := in.Read(buf[:min(left, int64(len(buf)))])
		left -= int64(got)
		if err != nil && (left > 0 || !errors.Is(err, io.EOF)) {
			return fmt.Errorf("%d of %d bytes came: %w", n-left, n, err)
		}
	}
	return nil
}
