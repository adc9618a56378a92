package main

import (
	"context"
	"os"

	"github.com/handlerd/handler/handlerd/web"
)

// wireDoor makes the page's door, which is closed. busy keeps the daemon while it is open.
func (w *wired) wireDoor(busy func() func()) error {
	var err error
	w.door, err = web.New(web.Options{
		State: w.dirs.Web(), Opened: w.dirs.WebOpened(),
		Port: w.settings.Web.Port, Enabled: w.settings.Web.Enabled,
		OpenPort: func(ctx context.Context, run string, port int, listener string) (web.Port, error) {
			f, err := w.runs.Forward(ctx, run, port, listener)
			if err != nil {
				return nil, err // and no typed nil
			}
			return f, nil
		},
		Audit: w.audit.Append, Busy: busy, UID: os.Getuid(),
		Version: version, User: os.Getenv("USER"), Home: w.dirs.Home,
		Logger: w.log.With("part", "web"),
	})
	return err
}
