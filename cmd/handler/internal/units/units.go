// Package units installs handlerd's systemd user units (contract K.4) and asks the person's systemd about them, over
// D-Bus.
package units

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/handlerd/handler/packaging/systemd"
)

// ErrNoSystemd says that no systemd of the person's can be asked.
var ErrNoSystemd = errors.New("there is no systemd user session here")

// A Manager is a connection to the person's systemd.
type Manager struct{ conn *dbus.Conn }

// Connect connects to the person's systemd by their D-Bus (address, as DBUS_SESSION_BUS_ADDRESS has it, or the bus in
// runtimeDir), or where there is none by systemd's own socket. Where neither answers the error is an ErrNoSystemd.
func Connect(ctx context.Context, address, runtimeDir string) (*Manager, error) {
	bus, private := filepath.Join(runtimeDir, "bus"), filepath.Join(runtimeDir, "systemd/private")
	if address == "" && exists(bus) {
		address = "unix:path=" + bus
	}
	var conn *dbus.Conn
	var err error
	switch {
	case address != "":
		conn, err = dbus.NewConnection(func() (*godbus.Conn, error) { return dial(ctx, address, true) })
	case exists(private):
		// Systemd itself is no bus and knows no Hello.
		conn, err = dbus.NewConnection(func() (*godbus.Conn, error) { return dial(ctx, "unix:path="+private, false) })
	default:
		return nil, ErrNoSystemd
	}
	if err == nil {
		// A bus without a systemd on it answers this with an error.
		if _, verr := conn.GetManagerProperty("Version"); verr != nil {
			conn.Close()
			err = verr
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSystemd, err)
	}
	return &Manager{conn}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func dial(ctx context.Context, address string, hello bool) (*godbus.Conn, error) {
	conn, err := godbus.Dial(address, godbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	err = conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil && hello {
		err = conn.Hello()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Close ends the connection.
func (m *Manager) Close() { m.conn.Close() }

// Install writes the units for a handlerd at exe into dir (~/.config/systemd/user), enables the socket and starts it:
// systemd listens then, and starts the daemon at the first connection. Units of the same text are written anew all the
// same. It returns the paths it wrote; when it fails it takes back what it wrote.
func (m *Manager) Install(ctx context.Context, dir, exe string) (paths []string, err error) {
	texts, err := systemd.Units(exe)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, p := range paths {
				err = errors.Join(err, os.Remove(p))
			}
			err = errors.Join(err, m.conn.ReloadContext(context.WithoutCancel(ctx)))
		}
	}()
	for _, name := range []string{systemd.Service, systemd.Socket} {
		path := filepath.Join(dir, name)
		if err := replace(path, texts[name]); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	if err := m.conn.ReloadContext(ctx); err != nil {
		return paths, fmt.Errorf("systemd reads its units again: %w", err)
	}
	if _, _, err := m.conn.EnableUnitFilesContext(ctx, []string{systemd.Socket}, false, true); err != nil {
		return paths, fmt.Errorf("enable %s: %w", systemd.Socket, err)
	}
	return paths, m.job(ctx, m.conn.StartUnitContext, systemd.Socket)
}

// replace writes a file in one step.
func replace(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".handlerd-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone where it was renamed
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Uninstall stops socket and daemon, which ends every run, disables the socket, and removes the units from dir. It
// returns the paths it removed; none there are no error.
func (m *Manager) Uninstall(ctx context.Context, dir string) (paths []string, err error) {
	// The socket first: a daemon that is gone would be started again by whoever connects.
	for _, name := range []string{systemd.Socket, systemd.Service} {
		if err := m.job(ctx, m.conn.StopUnitContext, name); err != nil && !notLoaded(err) {
			return nil, err
		}
	}
	if _, err := m.conn.DisableUnitFilesContext(ctx, []string{systemd.Socket}, false); err != nil && !notLoaded(err) {
		return nil, fmt.Errorf("disable %s: %w", systemd.Socket, err)
	}
	for _, name := range []string{systemd.Service, systemd.Socket} {
		path := filepath.Join(dir, name)
		switch err := os.Remove(path); {
		case err == nil:
			paths = append(paths, path)
		case !errors.Is(err, os.ErrNotExist):
			return paths, err
		}
	}
	return paths, m.conn.ReloadContext(ctx)
}

// notLoaded tells systemd's answer for a unit that it does not know.
func notLoaded(err error) bool {
	var e godbus.Error
	return errors.As(err, &e) && slices.Contains([]string{
		"org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.DBus.Error.FileNotFound", "org.freedesktop.systemd1.NoSuchUnitFile",
	}, e.Name)
}

// job starts a job and waits for its end.
func (m *Manager) job(ctx context.Context, start func(context.Context, string, string, chan<- string) (int, error), unit string) error {
	done := make(chan string, 1)
	if _, err := start(ctx, unit, "replace", done); err != nil {
		return fmt.Errorf("%s: %w", unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: systemd's job ended as %q; see: journalctl --user -u %s", unit, result, unit)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", unit, ctx.Err())
	}
}
