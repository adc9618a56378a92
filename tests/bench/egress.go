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

// measureEgress holds a run's proxy against tinyproxy and against a proxy that only copies: client – loopback – proxy –
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
		{&p.bare, func() (*helper, error) { return startRole("proxy", "copy", origin) }},
		{&p.inside, func() (*helper, error) { return startBehindGuest(b, "egress", origin) }},
		{&p.bareInside, func() (*helper, error) { return startBehindGuest(b, "copy", origin) }},
	} {
		if *start.into, err = keep(start.how()); err != nil {
			return err
		}
	}
	if err := p.throughput(ctx, b); err != nil {
		return err
	}
	return p.connections(ctx, b)
}

func startBehindGuest(b *bench, kind, origin string) (*helper, error) {
	dir, err := os.MkdirTemp(b.dir, "p")
	if err != nil {
		return nil, err
	}
	return startRole("proxy", kind, origin, dir, filepath.Join(b.bin, "handler-guest"))
}

// proxies are the addresses of what is compared.
type proxies struct{ origin, egress, tinyproxy, bare, inside, bareInside string }

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
	}{{"a CONNECT tunnel", tunnelled}, {"a plain GET", plain}} {
		values, err := turns(ctx, b.times(9, 3), through(way.fetch, p.egress), through(way.fetch, p.tinyproxy), through(way.fetch, p.bare),
			through(way.fetch, p.inside), through(way.fetch, p.bareInside))
		if err != nil {
			return fmt.Errorf("%s: %w", way.what, err)
		}
		b.report.compare("egress: throughput of "+way.what, "MB/s", values[:3])
		b.report.add(row{
			Group: "egress", What: "egress: the same through the guest, against a bare copy", Figure: ratio(values[3], values[4]), Unit: "×",
			Numbers: []number{{"egress", median(values[3]), "MB/s"}, {"copy", median(values[4]), "MB/s"}},
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
		values, err := turns(ctx, b.times(9, 3), through(way.fetch, p.egress), through(way.fetch, p.tinyproxy), through(way.fetch, p.bare))
		if err != nil {
			return fmt.Errorf("connections by %s: %w", way.what, err)
		}
		b.report.compare("egress: connections a second, "+way.what, "/s", values)
	}
	return nil
}

// compare adds the two rows of a comparison with tinyproxy and the bare copy.
func (r *report) compare(what, unit string, values [][]float64) {
	for i, name := range []string{"tinyproxy", "copy"} {
		r.add(row{
			Group: "egress", What: what + ", against " + name, Figure: ratio(values[0], values[i+1]), Unit: "×",
			Numbers: []number{{"egress", median(values[0]), unit}, {name, median(values[i+1]), unit}},
		})
	}
}

// fetchTime bounds one answer.
const fetchTime = 2 * time.Minute

// tunnelled fetches through a CONNECT tunnel.
func tunnelled(ctx context.Context, proxy, origin string, n int64) error {
	return talk(ctx, proxy, func(conn net.Conn) error {
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", origin, origin); err != nil {
			return err
		}
		in := bufio.NewReader(conn)
		if err := wantOK(in); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", n, origin); err != nil {
			return err
		}
		return wantBody(in, n)
	})
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
