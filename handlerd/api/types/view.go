package types

import "time"

// PathView is the live view of a display: GET ?ticket= with a WebSocket's upgrade carries RFB (RFC 6143) to whoever has a
// ticket, which counts once. Below a run, SubView (POST ViewRequest) gives a ViewTicket, SubStill (POST ViewRequest)
// keeps a picture as an Artifact, and SubTakeover (POST TakeoverRequest) gives the guarded browser to the person and back
// (Takeover).
const (
	PathView    = "/v1/view"
	SubView     = "/view"
	SubStill    = "/still"
	SubTakeover = "/takeover"
)

// Values of ViewRequest.What.
const (
	ViewDisplay = "display" // the display that a run has to itself (A.6)
	ViewBrowser = "browser" // the window of the guarded browser (contract F)
)

// A ViewRequest says what of a run is to be seen.
type ViewRequest struct {
	What string `json:"what"` // ViewDisplay or ViewBrowser
}

// A ViewTicket is good for one WebSocket.
type ViewTicket struct {
	Ticket   string    `json:"ticket"`
	Path     string    `json:"path"` // of the API: PathView
	Expires  time.Time `json:"expires"`
	ViewOnly bool      `json:"viewOnly"` // mouse and keys do not pass
	Says     string    `json:"says"`     // what the person should know of what is seen
}

// A TakeoverRequest takes the guarded browser over, or gives it back. Giving back what nobody took over is no error.
type TakeoverRequest struct {
	On bool `json:"on"`
}

// A Takeover is the answer: with On, the one viewer that comes with Ticket has mouse and keys, and the agent's browser
// tools are refused, until the person gives it back, the viewer's WebSocket closes, nobody comes with the ticket in its
// time, or the person does nothing for IdleSeconds. The WebSocket's closing reason says which. A second one meanwhile is
// refused.
type Takeover struct {
	On          bool        `json:"on"`
	Ticket      *ViewTicket `json:"ticket,omitempty"`
	IdleSeconds int         `json:"idleSeconds,omitempty"`
	Says        string      `json:"says"` // a sentence for the person
}
