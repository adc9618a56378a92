package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
)

// wireServers makes what hosted servers run in.
func (w *wired) wireServers(guest string, resolver egress.Resolver) {
	box := w.boxes(guest, resolver)
	box.Connections, box.Logger = mcpbox.ServerConnections, w.log.With("part", "servers")
	w.servers, w.room = mcpbox.New(box), mcpbox.NewRoom(mcpbox.MaxServers)
}

// hosted makes a server that handlerd hosts for a run: the guarded browser, or one in a sandbox of its own.
func (w *wired) hosted(run sessions.HostedRun, h render.Hosted) (sessions.HostedServer, error) {
	if h.Box == nil && h.Name == addons.GuardedBrowser {
		return &hostedBrowser{Browser: w.browser, run: run.ID}, nil
	}
	if h.Box == nil {
		return nil, errors.New("handlerd itself serves no MCP server " + h.Name)
	}
	network, err := w.catalog.ServerNetwork(run.Plan, h)
	if err != nil {
		return nil, err
	}
	rules := run.Network(h.Name, network)
	return &hostedServer{mcpbox.NewHost(mcpbox.HostOptions{
		Name: h.Name, Launcher: w.servers, Room: w.room, Session: run.Session, Idle: h.Limits.Idle, Life: h.Limits.Lifetime,
		Spec: func(ctx context.Context, session string) (mcpbox.Spec, error) {
			files, err := run.Secrets(ctx, h.Box.Secrets)
			if err != nil {
				// Where a secret lies is the person's business.
				run.Say("server "+h.Name, "it is not started: "+err.Error())
				return mcpbox.Spec{}, errors.New("the server " + h.Name + " cannot be started, since a secret of its cannot be read: your person finds why by handler logs " + run.ID)
			}
			return w.serverSpec(run, h, rules, session, files), nil
		},
		Logger: w.log.With("part", "servers"),
	})}, nil
}

// serverSpec is one box of a hosted server.
func (w *wired) serverSpec(run sessions.HostedRun, h render.Hosted, rules func() policy.Network, session string, files []sandbox.File) mcpbox.Spec {
	env := maps.Clone(h.Box.Env)
	maps.Copy(env, egress.Env())
	l := h.Limits
	callTime := time.Duration(mcpbox.ServerCallTime)
	if l.CallTime > 0 {
		callTime = l.CallTime + mcpbox.ServerCallGrace
	}
	return mcpbox.Spec{
		Run: run.ID, Agent: run.Agent, Session: session,
		Part: sandbox.PartServer, What: "server " + h.Name, Program: h.Name, Addon: h.Name,
		Sandbox: sandbox.Spec{
			Image: sandbox.ToolboxImage(""), Images: h.Box.Images, Command: h.Box.Command, Dir: sandbox.HomeTarget, Env: env, Files: files,
			Limits: sandbox.Limits{
				Memory: sandbox.Limit{Value: cmp.Or(l.Memory, mcpbox.ServerMemory)}, Processes: sandbox.Limit{Value: cmp.Or(l.Processes, mcpbox.ServerProcesses)},
				TmpBytes: cmp.Or(l.Tmp, mcpbox.ServerTmp), HomeBytes: cmp.Or(l.Home, mcpbox.ServerHome), ShmBytes: cmp.Or(l.Shm, mcpbox.ServerShm),
			},
		},
		Network:    rules,
		Audit:      func(r egress.Record) { w.runs.BoxRefused(run.ID, r) },
		Failed:     func(f egress.Failure) { w.runs.BoxFailed(run.ID, f) },
		LaunchTime: mcpbox.ServerLaunchTime, CallTime: callTime, Closed: errors.New("its session is over"),
		StderrLine: func(line []byte) { run.Say("server "+h.Name, strings.ToValidUTF8(string(line), "·")) },
		Discreet:   true,
	}
}

// A hostedServer is a hosted server of one run.
type hostedServer struct{ *mcpbox.Host }

// Event tells it of sessions that end.
func (s *hostedServer) Event(e acp.Event) {
	if e.Kind == acp.SessionClosed {
		s.SessionClosed(e.Session)
	}
}
