package policy

// allowClients is P6, and the part of P3 that is about what the agent takes: a client's own stdio server runs inside
// the sandbox, where its command has to exist; client_mcp = "deny" refuses every server of a client.
func (c *Config) allowClients(s server, caps Caps) error {
	switch {
	case c.DenyClientMCP:
		return refuse("P6", s.of()+" is refused, since the agent takes none of a client's",
			c.editAgent(`leave it out in the client's settings, or set client_mcp = "allow"`))
	case s.kind == "" && s.windows():
		return refuse("P6", s.of()+" has the command "+quote(s.command)+", which is one of Windows, and would run in a Linux sandbox",
			"leave it out in the client's settings, or give a command that Linux has")
	case s.kind != "" && !c.takes(s.kind, caps):
		return refuse("P3", s.of()+" is of the type "+quote(s.kind)+", which the agent does not take",
			"leave it out in the client's settings")
	}
	return nil
}
