// Package web is the door of the page (contract K.1): a listener on the loopback, off until a person asks for it, that
// serves the page and, below /api, the API of the unix socket.
//
// Whoever is on the other side of a loopback port is nobody in particular: any user of the machine, and any page of the
// web that the person's browser shows. So each of these must hold, and none of them is alone:
//
//   - The connection is of a process of the daemon's own user (the kernel says so). Another user's is closed unread.
//   - The Host is the page's own, compared exactly: a name that somebody lets resolve to 127.0.0.1 is none of ours.
//   - Origin, where there is one and for all that is no plain reading, is the page's own, compared exactly; what the
//     browser says of where a request comes from (Sec-Fetch-Site) agrees.
//   - The cookie is one that a one-time link was exchanged for. It is HttpOnly, SameSite=Strict and host-only.
//   - Every method but GET and HEAD carries a token that only a page of this very origin can have read; cookies know no
//     ports, origins do.
//   - The request goes to a route that the table of reachable ones names (routes.go).
//
// # Links and cookies
//
// A link holds 256 random bits behind a "#", which browsers send to nobody: the page that it leads to posts them. It is
// good once, for LinkTime. A cookie holds 256 other random bits; handlerd keeps only their SHA-256, in a file of the
// person's alone, so that a restart of the daemon logs nobody out and a copy of the file logs nobody in. The token is
// made from the cookie and kept nowhere.
package web
