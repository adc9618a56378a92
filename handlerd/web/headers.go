package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// setHeaders sets what every answer has unless its handler knows better, which is stricter: artifacts and pictures have
// a policy of their own.
func setHeaders(h http.Header, port int) {
	h.Set("Content-Security-Policy", pagePolicy(port))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", permissions)
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Cookie, Origin, Sec-Fetch-Site")
}

// pagePolicy lets the page load what the door serves and nothing else: no script or style that stands in a page, no
// evaluation, no other host. Pictures may be the page's own data, since a person pastes some; the frames that it may show
// are forwards, which have names under localhost at this port.
func pagePolicy(port int) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; " +
		"font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; " +
		"frame-src http://*.localhost:" + strconv.Itoa(port) + "; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}

// permissions are what pages of the door may ask the browser for: the clipboard and the whole screen.
const permissions = "accelerometer=(), autoplay=(self), camera=(), clipboard-read=(self), clipboard-write=(self), display-capture=(), " +
	"fullscreen=(self), gamepad=(), geolocation=(), gyroscope=(), hid=(), idle-detection=(), local-fonts=(), magnetometer=(), " +
	"microphone=(), midi=(), payment=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), usb=(), xr-spatial-tracking=()"

// A patientWriter gives the browser WriteTime for each piece of an answer, however long the whole takes.
type patientWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	taken bool // the connection was taken over, and its deadlines are whoever's took it
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	p := &patientWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
	p.wait()
	return p
}

func (w *patientWriter) wait() {
	if !w.taken {
		_ = w.rc.SetWriteDeadline(time.Now().Add(WriteTime)) // a connection that cannot is gone
	}
}

// end leaves the server time for what is still to be written.
func (w *patientWriter) end() { w.wait() }

func (w *patientWriter) Write(p []byte) (int, error) {
	w.wait()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls; Flush is for those who know no controller.
func (w *patientWriter) FlushError() error {
	w.wait()
	return w.rc.Flush()
}

func (w *patientWriter) Flush() { _ = w.FlushError() }

func (w *patientWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.rc.Hijack()
	if err == nil {
		w.taken = true
	}
	return conn, buf, err
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limitBody bounds a request's body in size and time. done takes the bound on time off the connection.
func limitBody(w http.ResponseWriter, r *http.Request) (done func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(BodyTime)) // a connection that cannot is gone
	body := &timedBody{ReadCloser: http.MaxBytesReader(w, r.Body, BodyBytes), off: func() { _ = rc.SetReadDeadline(time.Time{}) }}
	r.Body = body
	return body.off
}

// A timedBody takes the bound on time away at its end: what follows is the waiting for an answer.
type timedBody struct {
	io.ReadCloser
	off func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.off()
	}
	return n, err
}
