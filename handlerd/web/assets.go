package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pageFiles is the page as it was built, in the folder assets; what lies in its own folder assets has names that change
// with what is in them.
//
//go:embed assets
var pageFiles embed.FS

// loginFiles is the page that exchanges a link.
//
//go:embed login
var loginFiles embed.FS

// An asset is a file of the page's.
type asset struct {
	data      []byte
	packed    func() []byte // with gzip; nil where that gains nothing
	etag      string
	mediaType string
	forever   bool // its name changes with what is in it
}

// assets are the files that the door serves, by the path of their address.
type assets struct {
	files map[string]*asset
	login map[string]*asset
}

// newAssets reads the files below a folder of the page's. One without an index.html is no page.
func newAssets(page fs.FS, dir string) (*assets, error) {
	a := &assets{}
	var err error
	if a.files, err = readAssets(page, dir); err != nil {
		return nil, err
	}
	if a.files["/index.html"] == nil {
		return nil, fmt.Errorf("the page has no index.html")
	}
	a.login, err = readAssets(loginFiles, "login")
	return a, err
}

func readAssets(from fs.FS, dir string) (map[string]*asset, error) {
	files := map[string]*asset{}
	err := fs.WalkDir(from, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, dir)
		files[rel] = newAsset(rel, data)
		return nil
	})
	return files, err
}

func newAsset(rel string, data []byte) *asset {
	sum := sha256.Sum256(data)
	a := &asset{data: data, mediaType: mediaType(rel), forever: strings.HasPrefix(rel, "/assets/"),
		etag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	if compressible(a.mediaType) {
		a.packed = sync.OnceValue(func() []byte { return pack(data) })
	}
	return a
}

// mediaType is by the name alone, and for what a page has: the machine's own table is not asked.
func mediaType(name string) string {
	known := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
		".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".webp": "image/webp", ".woff2": "font/woff2",
		".json": "application/json", ".webmanifest": "application/manifest+json", ".map": "application/json",
		".txt": "text/plain; charset=utf-8", ".wasm": "application/wasm",
	}
	if t := known[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return "application/octet-stream"
}

func compressible(mediaType string) bool {
	base, _, _ := mime.ParseMediaType(mediaType)
	return strings.HasPrefix(base, "text/") || slices.Contains([]string{"image/svg+xml", "application/json", "application/manifest+json", "application/wasm"}, base)
}

// pack gives data with gzip; nil where that is not smaller.
func pack(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil
	}
	if _, err := z.Write(data); err != nil || z.Close() != nil || b.Len() >= len(data) {
		return nil
	}
	return b.Bytes()
}

// ServeHTTP serves the page's files; every other address that a browser opens is one of the page's own views, which its
// index.html shows.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !reads(r.Method) {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	file := a.files[r.URL.Path]
	if file == nil && (r.URL.Path == "/" || !strings.HasPrefix(r.URL.Path, "/assets/") && strings.Contains(r.Header.Get("Accept"), "text/html")) {
		file = a.files["/index.html"]
	}
	if file == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("handler: there is nothing here\n")) // who asked may be gone
		return
	}
	if file.forever {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	} else {
		w.Header().Set("Cache-Control", "private, no-cache")
	}
	file.serve(w, r, http.StatusOK)
}

// enter serves the page that exchanges a link, or says how to get one.
func (a *assets) enter(w http.ResponseWriter, r *http.Request, status int) {
	a.login["/login.html"].serve(w, r, status)
}

func (a *assets) loginFile(w http.ResponseWriter, r *http.Request) {
	a.login[r.URL.Path].serve(w, r, http.StatusOK)
}

func (f *asset) serve(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	h.Set("Content-Type", f.mediaType)
	data, etag := f.data, f.etag
	if f.packed != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		if p := f.packed(); p != nil {
			h.Set("Content-Encoding", "gzip")
			data, etag = p, etag+"-gz"
		}
	}
	if h.Get("Cache-Control") != "no-store" {
		h.Set("ETag", `"`+etag+`"`)
		if status == http.StatusOK && r.Header.Get("If-None-Match") == `"`+etag+`"` {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // who asked may be gone
	}
}

// acceptsGzip reads as much of Accept-Encoding as browsers write.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, q, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0") || q == ""
		}
	}
	return false
}
