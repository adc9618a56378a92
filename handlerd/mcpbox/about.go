package mcpbox

import (
	"time"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/sandbox"
)

// An About says what a box is and whose, to whoever shows or counts boxes.
type About struct {
	Sandbox             string // the engine's id
	Run, Agent, Session string // Session may be ""
	Part                string // sandbox.PartBrowser, sandbox.PartServer
	What                string // "browser", "server notes"
	Addon               string // whose MCP server it is
	Since               time.Time
	Limits              sandbox.Limits
	// Traffic is what its proxy let out, as of when it is called; after the box's end as well.
	Traffic func() egress.Snapshot
}

// lives tells of a box whose sandbox stands.
func (b *Box) lives(since time.Time) {
	if b.l.o.Live == nil {
		return
	}
	b.gone = b.l.o.Live(About{Sandbox: b.id, Run: b.spec.Run, Agent: b.spec.Agent, Session: b.spec.Session, Part: b.spec.Part,
		What: b.spec.What, Addon: b.spec.Addon, Since: since, Limits: b.limits, Traffic: b.egress.Snapshot})
}
