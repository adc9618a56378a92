package preview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/harness"
)

// Bounds of registered apps.
const (
	MinPort      = 30000
	MaxPort      = 30999
	MaxApps      = 64       // of one scope
	MaxAppsBytes = 64 << 10 // of one file

	maxLabel = 63 // bytes of a name between the dots of a host
)

// AppsFile registers a scope's apps, below the scope. It is the one file of .handler that an agent may write.
const AppsFile = ".handler/public-apps.json"

const appsExample = `{"apps":{"NAME":{"port":30000}}}`

// ParseApps reads an AppsFile strictly: {"apps":{NAME:{"port":PORT}}} and nothing else, no name twice. A name is as
// [harness.ValidName] wants it, at most 63 bytes, and not "files"; a port is MinPort to MaxPort.
func ParseApps(data []byte) (map[string]int, error) {
	if len(data) > MaxAppsBytes {
		return nil, fmt.Errorf("it is larger than %d KiB", MaxAppsBytes>>10)
	}
	p := appsParser{json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	found := map[string]int{}
	seen := false
	err := p.object(func(key string) error {
		if key != "apps" || seen {
			return fmt.Errorf("the key %s is unknown or stands twice", shown(key))
		}
		seen = true
		return p.object(func(name string) error {
			if err := checkApp(name, found); err != nil {
				return err
			}
			port, err := p.port(name)
			found[name] = port
			return err
		})
	})
	switch {
	case err != nil:
		return nil, err
	case !seen:
		return nil, errors.New(`it has no "apps"`)
	}
	if _, err := p.dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	return found, nil
}

func checkApp(name string, found map[string]int) error {
	_, twice := found[name]
	switch {
	case harness.ValidName(name) != nil || len(name) > maxLabel || strings.HasSuffix(name, "-"):
		return fmt.Errorf("%s is no name of an app: names are 1 to %d of a-z, 0-9 and \"-\", and neither begin nor end with \"-\"", shown(name), maxLabel)
	case name == "files":
		return errors.New("an app may not be named files: that is where the workspace's files are")
	case twice:
		return fmt.Errorf("the app %s stands twice", name)
	case len(found) >= MaxApps:
		return fmt.Errorf("there are more than %d apps", MaxApps)
	}
	return nil
}

// An appsParser reads what appsExample shows.
type appsParser struct{ dec *json.Decoder }

var errAppsForm = errors.New("it must be like " + appsExample)

// object reads an object and has value read the value of each key.
func (p appsParser) object(value func(key string) error) error {
	if t, err := p.dec.Token(); err != nil || t != json.Delim('{') {
		return errAppsForm
	}
	for p.dec.More() {
		t, err := p.dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return errAppsForm
		}
		if err := value(key); err != nil {
			return err
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return errAppsForm
	}
	return nil
}

// port reads {"port":PORT}.
func (p appsParser) port(app string) (int, error) {
	port := 0
	err := p.object(func(key string) error {
		if key != "port" || port != 0 {
			return fmt.Errorf("the app %s: the key %s is unknown or stands twice", app, shown(key))
		}
		t, err := p.dec.Token()
		n, ok := t.(json.Number)
		if err != nil || !ok {
			return fmt.Errorf("the app %s: its port is no number", app)
		}
		i, err := n.Int64()
		if err != nil || i < MinPort || i > MaxPort {
			return fmt.Errorf("the app %s: its port must be %d to %d", app, MinPort, MaxPort)
		}
		port = int(i)
		return nil
	})
	if err == nil && port == 0 {
		err = fmt.Errorf("the app %s has no port", app)
	}
	return port, err
}

// lookUp gives the port of an app, as the scopes register it now.
func (s *Session) lookUp(name string) (int, error) {
	port, where := 0, ""
	all := map[string]bool{}
	for n := range s.scopes {
		file := filepath.Join(s.scopes[n].path, AppsFile)
		apps, err := s.readApps(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("%s cannot be used: %w. It must be like %s, with ports %d to %d", file, err, appsExample, MinPort, MaxPort)
		}
		for app := range apps {
			all[app] = true
		}
		if p := apps[name]; p != 0 {
			if where != "" {
				return 0, fmt.Errorf("the app %s is registered in %s and in %s: name one of them otherwise", name, where, file)
			}
			port, where = p, file
		}
	}
	if port == 0 {
		return 0, fmt.Errorf("no app %s is registered%s. Write %s in a folder of the workspace, like %s, with a port of %d to %d on which the app listens on 127.0.0.1",
			shown(name), others(all), AppsFile, appsExample, MinPort, MaxPort)
	}
	return port, nil
}

func others(all map[string]bool) string {
	if len(all) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(all))
	return "; there are: " + strings.Join(names[:min(len(names), 20)], ", ")
}

// readApps reads the apps that a scope registers. What opens it follows no symlink and opens nothing but a regular
// file, and what is read is bounded.
func (s *Session) readApps(n int) (map[string]int, error) {
	f, err := s.openAny(n, AppsFile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		return nil, errors.New("it is no regular file that may be read, or leads through a symlink")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxAppsBytes+1))
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	return ParseApps(data)
}

// handler answers the host of an app.
func (a *apps) handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ourOrigin(r.Header) {
			refuse(w, http.StatusForbidden, "a page that is not of the workspace sends this: apps of the workspace answer only each other's pages")
			return
		}
		port, err := a.s.lookUp(name)
		if err != nil {
			refuse(w, http.StatusNotFound, err.Error())
			return
		}
		a.proxy(name, port).ServeHTTP(w, r)
	})
}
