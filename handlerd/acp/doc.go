// Package acp carries ACP between a client and an agent: newline-delimited JSON-RPC, raw.
//
// A [Reader] gives lines, [Scan] says what a line is without decoding it, and a [Relay] joins the two ends. The relay
// never re-encodes: a line goes on with the bytes it came with, and a rule replaces only the bytes it owns (design
// §3). There is one FIFO writer a direction, so what Handler answers itself stands in order with what it passes on,
// and nothing is queued without bound: a slow reader on one side stops the reading of the other.
//
// What may pass is asked of [Rules]; [NewRules] makes those of contract C from a policy.Config. How one run is wired:
//
//	relay := acp.NewRelay(acp.Options{
//		Client: editor, Agent: guest, // each a net.Conn or the like
//		Rules:  acp.NewRules(cfg, plan.SessionsPerRun),
//		Observe: func(e acp.Event) { … },
//		AgentEnded: func(ctx context.Context) string { … exit code and the last lines of stderr … },
//	})
//	end := relay.Run(ctx) // returns when both directions have ended and both ends are closed
package acp
