package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/handler/internal/forward"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/duplex"
)

// forwardOptions are the flags of handler forward.
type forwardOptions struct {
	open, tcp bool
	listen    uint16
}

func newForward(u *ui) *cobra.Command {
	var o forwardOptions
	cmd := &cobra.Command{
		Use: "forward RUN PORT", Short: "Open a port of a run's sandbox in your own browser", Args: usageArgs(cobra.ExactArgs(2)),
		Long: `Makes what listens on 127.0.0.1:PORT in the sandbox of a live run reachable from this machine, until the run ends or
you press Ctrl-C. It prints an address with a random name: only that is answered, and only from this machine.

What the address shows is the agent's: treat it as a page of the web that you do not know, and type no password there.

With --tcp it is plain TCP, for what is no web server. Every program on this machine can connect then, and so, in part,
can pages in your browser.`,
		Example: `  handler forward k3f9 5173
  handler forward k3f9 8000 --open
  handler forward k3f9 5432 --tcp --listen 15432`,
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return fault.New(fault.Usage, "usage: "+cmd.UseLine(), "%q is no port: ports are 1 to 65535", args[1])
			}
			return u.forward(cmd, args[0], int(port), o)
		},
	}
	cmd.Flags().BoolVar(&o.open, "open", false, "open the address in your browser")
	cmd.Flags().BoolVar(&o.tcp, "tcp", false, "carry plain TCP instead of HTTP")
	cmd.Flags().Uint16Var(&o.listen, "listen", 0, "the port on this machine (default: one that is free)")
	cmd.MarkFlagsMutuallyExclusive("open", "tcp")
	return cmd
}

func (u *ui) forward(cmd *cobra.Command, id string, port int, o forwardOptions) error {
	c, err := u.running(cmd)
	if err != nil {
		return err
	}
	if c == nil {
		return fault.New(fault.NotFound, "see: handler ps", "there is no run %q", id)
	}
	ctx := cmd.Context()
	run, err := c.Run(ctx, id)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.listen))))
	if err != nil {
		return fault.Wrap(fault.Failed, err, "take another port, or leave --listen out", "the port on this machine")
	}
	defer l.Close()
	f, err := forward.New(forward.Options{Listener: l, TCP: o.tcp, Dial: func(ctx context.Context) (duplex.Conn, error) {
		s, err := c.Dial(ctx, run.ID, port)
		if err != nil {
			return nil, err // and no typed nil
		}
		return s, nil
	}})
	if err != nil {
		return err
	}
	open, err := c.Forward(ctx, run.ID, port, l.Addr().String())
	if err != nil {
		return err
	}
	defer open.Close()
	if err := u.sayForward(f, run, port, o); err != nil {
		return err
	}
	if !o.tcp { // a server of one connection would be used up by it
		u.tryPort(ctx, c, run.ID, port)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// It ends with the run, or with us.
		_, _ = io.Copy(io.Discard, open)
		cancel()
	}()
	if err := f.Serve(ctx); err != nil {
		return fault.Wrap(fault.Failed, err, "", "the forward")
	}
	if cmd.Context().Err() == nil {
		u.say("the run %s has ended", run.ID)
	}
	return nil
}

// sayForward prints where the port is.
func (u *ui) sayForward(f *forward.Forward, run types.Run, port int, o forwardOptions) error {
	if u.json {
		if err := writeJSONLine(u.out, map[string]any{"run": run.ID, "port": port, "url": f.URL(), "address": f.Address()}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(u.out, firstOf(f.URL(), f.Address())); err != nil {
		return err
	}
	u.say("this is port %d of run %s, agent %s, until it ends or you press Ctrl-C; what it shows is the agent's", port, run.ID, plain(run.Agent))
	if o.tcp {
		u.say("every program on this machine can connect to it")
	}
	if o.open {
		u.openBrowser(f.URL())
	}
	return nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// tryPort tells the person, who may have mistyped the port, that nothing is there yet.
func (u *ui) tryPort(ctx context.Context, c *client.Client, run string, port int) {
	s, err := c.Dial(ctx, run, port)
	if err != nil {
		if ctx.Err() == nil {
			u.say("%s; the address works as soon as something does", fault.Of(err).Text)
		}
		return
	}
	_ = s.Close()
}

// openBrowser starts the person's browser, and says where it cannot: the address is printed already.
func (u *ui) openBrowser(url string) {
	cmd := exec.Command("xdg-open", url)
	if err := cmd.Start(); err != nil {
		u.say("no browser was started (%v): open the address yourself", err)
		return
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			u.say("xdg-open failed (%v): open the address yourself", err)
		}
	}()
}
