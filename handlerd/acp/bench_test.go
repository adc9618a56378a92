package acp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/policy"
)

// socketPair gives the two ends of a unix socket: what the relay's real ends are.
func socketPair(tb testing.TB) (a, b *net.UnixConn) {
	tb.Helper()
	l, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	return dialled.(*net.UnixConn), accepted.(*net.UnixConn)
}

// ends gives what a client and an agent hold when join joins the two.
func ends(tb testing.TB, join func(client, agent *net.UnixConn) (stop func())) (client, agent *net.UnixConn) {
	tb.Helper()
	client, c := socketPair(tb)
	agent, a := socketPair(tb)
	stop := join(c, a)
	tb.Cleanup(func() {
		client.Close()
		agent.Close()
		stop()
	})
	return client, agent
}

func byRelay(c, a *net.UnixConn) func() {
	r := acp.NewRelay(acp.Options{Client: c, Agent: a, Rules: acp.NewRules(&policy.Config{}, 0), Rate: math.MaxInt32})
	done := make(chan struct{})
	go func() { defer close(done); r.Run(context.Background()) }()
	return func() { <-done }
}

func byCopy(c, a *net.UnixConn) func() {
	done := make(chan struct{}, 2)
	pipe := func(to, from *net.UnixConn) {
		_, _ = io.Copy(struct{ io.Writer }{to}, from)
		to.CloseWrite()
		done <- struct{}{}
	}
	go pipe(a, c)
	go pipe(c, a)
	return func() { <-done; <-done; c.Close(); a.Close() }
}

// cpu gives the processor time that the process has used: unlike elapsed time, it does not depend on neighbours.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSmall is the time of a small message there and back.
func BenchmarkSmall(b *testing.B) {
	up := []byte(`{"jsonrpc":"2.0","id":"x","method":"session/set_mode","params":{"sessionId":"s1","modeId":"default"}}` + "\n")
	down := []byte(`{"jsonrpc":"2.0","id":"x","result":{}}` + "\n")
	for name, join := range map[string]func(c, a *net.UnixConn) func(){"copy": byCopy, "relay": byRelay} {
		b.Run(name, func(b *testing.B) {
			client, agent := ends(b, join)
			go func() {
				in := bufio.NewReader(agent)
				for {
					if _, err := in.ReadSlice('\n'); err != nil {
						return
					}
					if _, err := agent.Write(down); err != nil {
						return
					}
				}
			}()
			in := bufio.NewReader(client)
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := client.Write(up); err != nil {
					b.Fatal(err)
				}
				if _, err := in.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "µs-median")
		})
	}
}

// BenchmarkBig is the throughput of lines of 20 MB from agent to client, as a picture in a tool call's update.
func BenchmarkBig(b *testing.B) {
	picture := strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 20<<20/24)
	escaped := strings.Repeat(`func f() {\n\treturn \"x\"\n}\n`, 20<<20/29)
	for kind, text := range map[string]string{"picture": picture, "source": escaped} {
		line := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"` + text + `"}}]}}}` + "\n")
		for name, join := range map[string]func(c, a *net.UnixConn) func(){"copy": byCopy, "relay": byRelay} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				client, agent := ends(b, join)
				b.SetBytes(int64(len(line)))
				n := 0
				done := make(chan struct{})
				rest := make(chan int, 1)
				go func() {
					defer close(done)
					buf := make([]byte, 256<<10)
					got, want := 0, -1
					for want < 0 || got < want {
						n, err := client.Read(buf)
						if err != nil {
							return
						}
						got += n
						if want < 0 {
							select {
							case want = <-rest:
							default:
							}
						}
					}
				}()
				before := cpu(b)
				for b.Loop() {
					if _, err := agent.Write(line); err != nil {
						b.Fatal(err)
					}
					n++
				}
				b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(n), "cpu-ms/op")
				rest <- n * len(line)
				agent.Write([]byte("\n")) // wakes the reader where it has read all
				agent.CloseWrite()
				<-done
			})
		}
	}
}

// BenchmarkScan is the cost of looking at a long line.
func BenchmarkScan(b *testing.B) {
	for name, text := range map[string]string{
		"picture": strings.Repeat("iVBORw0KGgo", 20<<20/11),
		"source":  strings.Repeat(`func f() {\n\treturn \"x\"\n}\n`, 20<<20/34),
		"greek":   strings.Repeat(`μῆνιν ἄειδε θεὰ`, 20<<20/30),
	} {
		b.Run(name, func(b *testing.B) {
			line := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"x":"` + text + `"}}`)
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := acp.Scan(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReader is the cost of reading a long line.
func BenchmarkReader(b *testing.B) {
	line := append(bytes.Repeat([]byte("x"), 20<<20), '\n')
	b.SetBytes(int64(len(line)))
	var buf []byte
	for b.Loop() {
		got, err := acp.NewReader(bytes.NewReader(line), 0).Next(buf)
		if err != nil {
			b.Fatal(err)
		}
		buf = got.Bytes
	}
}
