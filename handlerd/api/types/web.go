package types

import "time"

// Paths of the page's door (contract K.1). The page's own origin has the API below /api; what of it is reachable there
// is a table of handlerd/web.
const (
	// PathWeb: GET gives WebStatus.
	PathWeb = "/v1/web"
	// PathWebLink: POST WebOpen opens the door where it is closed, and gives a WebLink. Not reachable from the page.
	PathWebLink = "/v1/web/link"
	// PathWebOff: POST closes the door; who is logged in stays so. Not reachable from the page.
	PathWebOff = "/v1/web/off"
	// PathWebLogins: DELETE /{id} logs a browser out; the id AllLogins all of them.
	PathWebLogins = "/v1/web/logins"
	// PathMe is the page's alone, below its /api: GET gives WebMe.
	PathMe = "/me"
	// PathLogout is the page's alone, below its /api: POST logs this browser out.
	PathLogout = "/logout"

	// SubForwards is below a run's path: POST PortRequest shows a port of the run in the page, under a name of its own, and
	// gives Forwarded; GET gives []Forwarded; DELETE /{forward} ends one.
	SubForwards = "/forwards"

	// HeaderToken carries WebMe.Token in every request of the page's but GET and HEAD.
	HeaderToken = "Handler-Token"
	// AllLogins stands for every browser.
	AllLogins = "all"
)

// A WebStatus says whether the page is served and to whom.
type WebStatus struct {
	On     bool       `json:"on"`
	URL    string     `json:"url,omitempty"` // the page's origin with a slash; useless without a login
	Port   int        `json:"port,omitempty"`
	Logins []WebLogin `json:"logins"`
	// Forwards are the ports of runs that the page shows, the oldest first.
	Forwards []Forwarded `json:"forwards"`
	// Problem is why a door that handler.toml wants open is not; "" for none.
	Problem string `json:"problem,omitempty"`
}

// A WebLogin is a browser that is logged in.
type WebLogin struct {
	ID      string    `json:"id"`
	Browser string    `json:"browser"` // what it says that it is
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"` // within an hour
	Expires time.Time `json:"expires"`
}

// WebOpen asks for a link.
type WebOpen struct {
	// Port is what the door listens on; 0 for that of handler.toml, else the usual one or the next that is free.
	Port int `json:"port,omitempty"`
}

// A WebLink logs one browser in, once.
type WebLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
	Port    int       `json:"port"`
	Notice  string    `json:"notice,omitempty"` // what the person should know, such as that the usual port was taken
}

// WebMe says to the page who it is there for.
type WebMe struct {
	Token   string `json:"token"` // for HeaderToken
	Version string `json:"version"`
	User    string `json:"user"`
	Home    string `json:"home"`
}

// A Forwarded is a port of a run's sandbox that the page shows, by the door's own listener. It ends with the run.
type Forwarded struct {
	ID      string    `json:"id"`
	Run     string    `json:"run"`
	Agent   string    `json:"agent"`
	Port    int       `json:"port"`
	URL     string    `json:"url"` // an origin of its own, which the page alone may frame
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"` // asking for the same port again puts it off
}
