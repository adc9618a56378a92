// Package view lets a person see a display that a sandbox has to itself (A.6): by a ticket that counts once, a WebSocket
// that carries RFB (RFC 6143, the protocol of VNC), and a filter of our own between the two.
//
// Neither side is trusted. What comes from the sandbox may be an agent's imitation of a VNC server: it is parsed strictly
// and bounded, only encodings pass whose length can be checked, and its clipboard never reaches the person's. What comes
// from the viewer is held to the messages that looking needs: pointer, keys and clipboard do not reach the sandbox. The one
// exception is a person who has taken the guarded browser over: their pointer and keys pass (Grant.Hands), and their
// clipboard still does not.
//
// Nothing of what is shown is logged or kept. The one picture that is kept is the one that is asked for (Still).
package view
