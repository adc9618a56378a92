package preview

import (
	"io"
	"net/http"
	"path"
	"strings"
)

// filesPolicy is the Content-Security-Policy of every file: a page does what it likes with its own origin, what it
// carries itself (data:, blob:) and nothing else. It sends no form elsewhere, loads from nowhere, and nobody frames it.
// It may still lead the browser away by a navigation, which is judged as every navigation is.
const filesPolicy = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; connect-src 'self'; object-src 'none'; " +
	"base-uri 'self'; form-action 'self'; frame-ancestors 'self'"

// mediaTypes are what files are by their extension; what is not here is downloaded.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".xhtml": "application/xhtml+xml",
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json",
	".xml": "text/xml; charset=utf-8", ".wasm": "application/wasm", ".pdf": "application/pdf",
	".txt": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".csv": "text/plain; charset=utf-8",
	".log": "text/plain; charset=utf-8", ".vtt": "text/vtt; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".avif": "image/avif", ".ico": "image/x-icon", ".bmp": "image/bmp",
	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf",
	".mp3": "audio/mpeg", ".ogg": "audio/ogg", ".wav": "audio/wav", ".m4a": "audio/mp4", ".flac": "audio/flac",
	".mp4": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg",
}

// mediaType says what a file is by its name, never by what is in it.
func mediaType(name string) string {
	if t := mediaTypes[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return "application/octet-stream"
}

// serveEntry leads from http://files.workspace.invalid/PATH to the file's own origin.
func (s *Session) serveEntry(w http.ResponseWriter, r *http.Request) {
	name, ok := requested(w, r)
	if !ok {
		return
	}
	address, err := s.Open(name)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error()+". "+help)
		return
	}
	if r.URL.RawQuery != "" {
		address += "?" + r.URL.RawQuery
	}
	guard(w.Header())
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusFound)
}

// folderHandler serves the folder of one origin.
func (s *Session) folderHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		o, ok := s.origins[name]
		s.mu.Unlock()
		if !ok {
			refuse(w, http.StatusNotFound, "this address of the workspace's files is not known, or not any more: it lives with its browser session. Navigate to http://"+FilesHost+"/PATH again")
			return
		}
		if file, ok := requested(w, r); ok {
			s.serveFile(w, r, o, file)
		}
	})
}

// requested gives the path that a request for a file asks for, or answers it.
func requested(w http.ResponseWriter, r *http.Request) (string, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "files of the workspace can only be read (GET, HEAD)")
		return "", false
	}
	// A "/" that is written %2F would be another path to the browser than to us.
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") || !strings.HasPrefix(r.URL.Path, "/") {
		refuse(w, http.StatusNotFound, "this is no path of a file: write it without %2F")
		return "", false
	}
	return r.URL.Path, true
}

// serveFile answers with a file of an origin's folder, ranges and all.
func (s *Session) serveFile(w http.ResponseWriter, r *http.Request, o origin, name string) {
	rel := strings.TrimPrefix(name, "/")
	if rel == "" || strings.HasSuffix(rel, "/") {
		rel += "index.html"
	}
	if err := checkPath(rel); err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	whole := path.Join(o.folder, rel)
	f, err := s.open(o.scope, whole)
	if err != nil {
		err = s.explain(o.scope, whole, err)
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		refuse(w, http.StatusNotFound, "the file cannot be read")
		return
	}
	guard(w.Header())
	w.Header().Set("Content-Type", mediaType(rel))
	// It is the size of now that is promised: a file that grows meanwhile is cut there, and the next request sees more.
	http.ServeContent(w, r, "", info.ModTime(), io.NewSectionReader(f, 0, info.Size()))
}

// guard sets what every answer about files has.
func guard(h http.Header) {
	h.Set("Content-Security-Policy", filesPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")              // the origin's name is nobody's business
	h.Set("Cross-Origin-Resource-Policy", "same-origin") // no page of the web embeds it
	h.Set("Cross-Origin-Opener-Policy", "same-origin")   // or holds its window
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-read=()")
}

// refuse answers with a text, for whoever reads pages.
func refuse(w http.ResponseWriter, status int, text string) {
	guard(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

func refusal(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, text) })
}
