// Package guestwire is what handler-guest and the host say to each other (contract E): frames on guest.sock and
// the one transfer on files.sock.
//
// guest.sock carries newline-delimited JSON objects, at most MaxFrame bytes each. Every kind has exactly the keys
// of this table, all of them required:
//
//	guest to host   hello    version            first frame, once
//	                started  pid                the command runs; pid as the sandbox sees it
//	                stderr   data dropped       base64, at most MaxStderr bytes; bytes lost before them
//	                exit     code signal        the command ended; signal is "" or such as "TERM"
//	                failed   text               the command could not be started, and why
//	host to guest   signal   name               one of SignalNames
//	                shell    token              make a connection to shell.sock and say this on it (shell.go)
//	                dial     token port         the same, then join it to this port of the sandbox's loopback
//	                screen   token              the same, then join it to the VNC server of the sandbox's own display
//	                hands    token              the same, of a VNC server that takes pointer and keys
//
// A connection that a dial, screen or hands frame asked for begins as a shell's does, with a ShellToken frame; then the guest says
// ShellStarted, behind which the port's or the server's own bytes go both ways, or ShellFailed and why.
//
// The agent has the guest's uid and may imitate it, so the host trusts nothing of this: it parses strictly, bounds
// everything, and only ever shows what it hears.
//
// files.sock carries one transfer (WriteFiles), which the guest answers with one frame, written or failed.
package guestwire
