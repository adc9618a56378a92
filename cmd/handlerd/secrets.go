package main

import (
	"context"
	"os"
	"strings"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/doctor"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/secrets"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox/podman"
)

// secretReader reads secrets in the person's session, as far as our environment tells of it. What pass and commands see
// is this list and no more.
func (w *wired) secretReader() *secrets.Reader {
	bus := sessionBus(w.dirs.XDGRun)
	env := []string{"XDG_RUNTIME_DIR=" + w.dirs.XDGRun}
	if bus != "" {
		env = append(env, "DBUS_SESSION_BUS_ADDRESS="+bus)
	}
	for _, name := range []string{
		"USER", "LOGNAME", "LANG", "LC_ALL", "GPG_TTY", "GNUPGHOME", "PASSWORD_STORE_DIR", // gpg and pass
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", // where a pinentry may ask
		"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", // where other password programs keep what they know
	} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return secrets.NewReader(secrets.Options{
		Home: w.dirs.Home, Path: os.Getenv("PATH") + ":" + podman.DefaultPath, Env: env,
		PasswordStore: os.Getenv("PASSWORD_STORE_DIR"), SessionBus: bus, Credentials: os.Getenv("CREDENTIALS_DIRECTORY"),
	})
}

// A namedSecret is one that a run of an agent would read.
type namedSecret struct {
	name, use string
	source    render.Source
	key       bool
}

func secretsOf(plan *render.Plan) []namedSecret {
	var list []namedSecret
	for _, u := range plan.Upstreams {
		list = append(list, namedSecret{u.Name, "key of the upstream " + u.Name, u.Secret, true})
	}
	for _, s := range plan.AllSecrets() {
		addon, _, _ := strings.Cut(s.Name, ".")
		list = append(list, namedSecret{s.Name, "file of the addon " + addon, s.Source, false})
	}
	return list
}

// checkSecrets reads every secret of an agent as a run would, one after the other, and says how that went.
func (w *wired) checkSecrets(ctx context.Context, agent string) ([]types.SecretCheck, error) {
	plan, err := w.catalog.Plan(agent, w.dirs.Home)
	if err != nil {
		return nil, err
	}
	var checks []types.SecretCheck
	for _, s := range secretsOf(plan) {
		rec := audit.Record{Kind: audit.KindSecret, Agent: plan.Agent, Subject: s.name, Reason: "read from " + s.source.Kind() + " to check it"}
		if err := w.audit.Append(rec); err != nil {
			return nil, fault.Wrap(fault.Failed, err, "free some space or mend the disk", "a use of a secret that cannot be written down is refused")
		}
		c := w.secrets.Check(ctx, s.source, s.key)
		check := types.SecretCheck{Name: s.name, Use: s.use, Kind: c.Kind, Source: c.Source, OK: c.Err == nil, TookMS: c.Took.Milliseconds()}
		if c.Err != nil {
			check.Problem = c.Err.Error()
		}
		checks = append(checks, check)
	}
	return checks, nil
}

// probeSecrets says of the saved agents' secrets whether they can most likely be read, asking nobody for a passphrase.
func (w *wired) probeSecrets(ctx context.Context) ([]doctor.Secret, error) {
	saved, err := agents.List(w.catalog.AgentsDir())
	if err != nil {
		return nil, err
	}
	var list []doctor.Secret
	for _, e := range saved {
		if e.Err != nil {
			continue // handler agent list tells of it
		}
		plan, err := w.catalog.Plan(e.Name, w.dirs.Home)
		if err != nil {
			continue
		}
		for _, s := range secretsOf(plan) {
			list = append(list, doctor.Secret{Agent: e.Name, Name: s.name, Err: w.secrets.Probe(ctx, s.source)})
		}
	}
	return list, nil
}
