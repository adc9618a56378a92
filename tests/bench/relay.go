package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// measureRelay holds handlerd's relay against a bare copy: client – unix socket – relay or copy – unix socket – the real
// guest – pipes – agent, each a process of its own.
func measureRelay(ctx context.Context, b *bench) (err error) {
	relay, err := startHop(b, "relay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, relay.close()) }()
	bare, err := startHop(b, "copy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	defer until(ctx, func() { relay.conn.Close(); bare.conn.Close() })()
	for _, step := range []func(context.Context, *bench, *hopClient, *hopClient) error{relayMemory, relaySmall, relayLong} {
		if err := step(ctx, b, relay, bare); err != nil {
			return err
		}
	}
	return nil
}

// relaySmall is the time of a small request and its answer. A turn is many of them; what counts is the median of a turn,
// and of those the median.
func relaySmall(ctx context.Context, b *bench, relay, bare *hopClient) error {
	var all [2][]float64 // every single time, for the tail
	measure := func(i int, c *hopClient) contender {
		return contender{func(context.Context) (float64, error) {
			var took []float64
			for range b.times(2000, 300) {
				d, err := c.small()
				if err != nil {
					return 0, err
				}
				took = append(took, microseconds(d))
			}
			all[i] = append(all[i], took...)
			return median(took), nil
		}}
	}
	values, err := turns(ctx, b.times(10, 3), measure(0, relay), measure(1, bare))
	if err != nil {
		return err
	}
	b.report.add(row{
		Group: "relay", What: "relay: added to a small request and its answer, median", Figure: minus(values[0], values[1]), Unit: "µs",
		Target: atMost(100), Numbers: []number{{"relay", median(values[0]), "µs"}, {"copy", median(values[1]), "µs"}},
	})
	slow := [2]float64{quantile(all[0], 0.99), quantile(all[1], 0.99)}
	b.report.add(row{
		Group: "relay", What: "relay: the same, 99th percentile", Figure: slow[0] - slow[1], Unit: "µs",
		Numbers: []number{{"relay", slow[0], "µs"}, {"copy", slow[1], "µs"}},
	})
	return nil
}

// relayLong is the throughput of lines of 20 MB, many in a row: of a single one the relay must have the end before it
// sends the beginning.
func relayLong(ctx context.Context, b *bench, relay, bare *hopClient) error {
	lines := b.times(16, 3)
	for _, way := range []struct {
		name string
		rate func(*hopClient) (float64, error)
	}{
		{"agent to client, a picture", func(c *hopClient) (float64, error) { return c.down("picture", lines) }},
		{"agent to client, source text", func(c *hopClient) (float64, error) { return c.down("source", lines) }},
		{"client to agent, a picture", func(c *hopClient) (float64, error) { return c.upward(lines) }},
	} {
		measure := func(c *hopClient) contender {
			return contender{func(context.Context) (float64, error) { return way.rate(c) }}
		}
		values, err := turns(ctx, b.times(11, 3), measure(relay), measure(bare))
		if err != nil {
			return err
		}
		b.report.add(row{
			Group: "relay", What: "relay: lines of 20 MB, " + way.name, Figure: ratio(values[0], values[1]), Unit: "×", Target: atLeast(0.6),
			Numbers: []number{{"relay", median(values[0]), "MB/s"}, {"copy", median(values[1]), "MB/s"}},
		})
	}
	return nil
}

// relayMemory is how often a line of 20 MB is in the relay's memory, at most: its peak over what it had before, by the
// line's length. It comes first, while the relay has no buffers yet.
func relayMemory(ctx context.Context, b *bench, relay, bare *hopClient) error {
	for _, c := range []*hopClient{relay, bare} {
		if _, err := c.small(); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 10} {
		before, err := resetPeak(relay.cmd.Process.Pid)
		if err != nil {
			return err
		}
		if _, err := relay.down("picture", n); err != nil {
			return err
		}
		peak, err := peakMemory(relay.cmd.Process.Pid)
		if err != nil {
			return err
		}
		w := row{
			Group: "relay", What: "relay: copies of a line of 20 MB in memory, at most", Figure: float64(peak-before) / lineBytes,
			Target: atMost(2), Numbers: []number{{"before", float64(before) / 1e6, "MB"}, {"peak", float64(peak) / 1e6, "MB"}},
		}
		if n > 1 {
			w.What, w.Target = fmt.Sprintf("relay: lines in memory while %d of 20 MB pass, one read as another is written", n), target{}
		}
		b.report.add(w)
		if err := rest(ctx, 7*time.Second); err != nil { // the relay gives big buffers back after five
			return err
		}
	}
	return nil
}

// resetPeak sets a process's peak of resident memory to what it has now, which it gives.
func resetPeak(pid int) (int64, error) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return 0, err
	}
	return peakMemory(pid)
}

// peakMemory gives a process's peak of resident memory, in bytes.
func peakMemory(pid int) (int64, error) {
	return kilobytes(readString(fmt.Sprintf("/proc/%d/status", pid)), "VmHWM:")
}

// rest waits until what nothing tells of has happened, such as a collection of garbage.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
