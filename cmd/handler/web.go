package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
)

// webOptions are the flags of handler web.
type webOptions struct {
	print, off, list bool
	port             uint16
	logout           string
}

func newWeb(u *ui) *cobra.Command {
	var o webOptions
	cmd := &cobra.Command{
		Use: "web", Short: "Open Handler's page in your browser", Args: usageArgs(cobra.NoArgs),
		Long: `Opens the page in which you talk to agents, watch them and answer what they ask. It is served on this machine's
loopback only, from now until handler web --off, and lets in who has the link: once, within two minutes. Your browser is
then logged in for 30 days, or until it has not been there for 7.

Where there is no display, or with --print, the link is printed. From another machine forward the port, and open the link
there; the port must be the same on both, as the page answers to its own name only:

  ssh -L 7766:127.0.0.1:7766 YOU@THE-MACHINE`,
		Example: `  handler web
  handler web --print
  handler web --list
  handler web --logout all
  handler web --off`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.off:
				return u.webOff(cmd)
			case o.list:
				return u.webList(cmd)
			case cmd.Flags().Changed("logout"):
				return u.webLogout(cmd, o.logout)
			}
			return u.webOpen(cmd, o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.print, "print", false, "print the link and open no browser")
	flags.Uint16Var(&o.port, "port", 0, "serve the page on this port (default: that of handler.toml, else 7766 or the next that is free)")
	flags.BoolVar(&o.off, "off", false, "end the serving of the page; who is logged in stays so")
	flags.BoolVar(&o.list, "list", false, "say whether the page is served, which ports of runs it shows, and which browsers are logged in")
	flags.StringVar(&o.logout, "logout", "", "log a browser out by its `LOGIN`, or all")
	cmd.MarkFlagsMutuallyExclusive("off", "list", "logout", "print")
	cmd.MarkFlagsMutuallyExclusive("off", "list", "logout", "port")
	return cmd
}

func (u *ui) webOpen(cmd *cobra.Command, o webOptions) error {
	c, _, err := u.connect(cmd.Context())
	if err != nil {
		return err
	}
	link, err := c.WebLink(cmd.Context(), int(o.port))
	if err != nil {
		return err
	}
	if link.Notice != "" {
		u.say("%s", link.Notice)
	}
	if u.json {
		return writeJSONLine(u.out, link)
	}
	if !o.print && u.hasDisplay() {
		if err = startBrowser(cmd.Context(), link.URL); err == nil {
			u.say("opened %s in your browser; to end it: handler web --off", strings.TrimSuffix(link.URL[:strings.IndexByte(link.URL, '#')], "login"))
			return nil
		}
		u.say("no browser was started (%v): open the link yourself", err)
	}
	if _, err := fmt.Fprintln(u.out, link.URL); err != nil {
		return err
	}
	u.say("this link is good once, until %s; to end the page: handler web --off", link.Expires.Local().Format("15:04:05"))
	if ssh := u.sshCommand(link.Port); ssh != "" {
		u.say("to open it where you are, type there first:\n  %s", ssh)
	}
	return nil
}

// hasDisplay tells whether a browser that is started here would be seen by the person.
func (u *ui) hasDisplay() bool {
	return u.getenv("WAYLAND_DISPLAY") != "" || u.getenv("DISPLAY") != ""
}

// startBrowser opens an address and waits for a moment, in which an opener that cannot would say so.
func startBrowser(ctx context.Context, url string) error {
	// The link is seen in the list of processes: it is good once, and for connections of this user's processes only.
	cmd := exec.Command("xdg-open", url)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(3 * time.Second): // it is the browser itself
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sshCommand is what the person types on their own machine, where this one is reached by ssh; "" where it is not.
func (u *ui) sshCommand(port int) string {
	fields := strings.Fields(u.getenv("SSH_CONNECTION")) // their address and port, ours
	if len(fields) != 4 {
		return ""
	}
	host, err := netip.ParseAddr(fields[2])
	if err != nil {
		return ""
	}
	command := fmt.Sprintf("ssh -N -L %d:127.0.0.1:%d", port, port)
	if fields[3] != "22" {
		command += " -p " + plain(fields[3])
	}
	return command + " " + plain(cmp.Or(u.getenv("USER"), u.getenv("LOGNAME"), "YOU")) + "@" + host.String()
}

// webOff also sees to it that a daemon which does not run now does not serve the page when it does.
func (u *ui) webOff(cmd *cobra.Command) error {
	c, err := u.running(cmd)
	if err != nil {
		return err
	}
	if c != nil {
		err = c.WebOff(cmd.Context())
	} else if d, dirErr := u.dirs(); dirErr != nil {
		return dirErr
	} else if err = os.Remove(d.WebOpened()); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	u.say("the page is not served any more")
	return nil
}

// webLogout needs a daemon: it starts one where none runs, since who is logged in stays so without one.
func (u *ui) webLogout(cmd *cobra.Command, id string) error {
	c, _, err := u.connect(cmd.Context())
	if err != nil {
		return err
	}
	if err := c.WebLogout(cmd.Context(), id); err != nil {
		return err
	}
	if id == types.AllLogins {
		u.say("every browser is logged out")
		return nil
	}
	u.say("%s is logged out", plain(id))
	return nil
}

func (u *ui) webList(cmd *cobra.Command) error {
	c, _, err := u.connect(cmd.Context())
	if err != nil {
		return err
	}
	s, err := c.Web(cmd.Context())
	if err != nil {
		return err
	}
	return u.result(s, func(w io.Writer) error {
		switch {
		case s.On:
			u.say("the page is served at %s", s.URL)
		case s.Problem != "":
			u.say("the page is not served: %s", plain(s.Problem))
		default:
			u.say("the page is not served; to open it: handler web")
		}
		for _, f := range s.Forwards {
			u.say("it shows port %d of run %s, agent %s, at %s", f.Port, f.Run, plain(f.Agent), f.URL)
		}
		if len(s.Logins) == 0 {
			u.say("no browser is logged in")
			return nil
		}
		rows := [][]string{{"LOGIN", "SINCE", "SEEN", "ENDS", "BROWSER"}}
		for _, l := range s.Logins {
			rows = append(rows, []string{l.ID, ago(l.Created), ago(l.Seen), l.Expires.Local().Format("2006-01-02"), l.Browser})
		}
		return table(w, rows)
	})
}
