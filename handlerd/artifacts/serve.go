package artifacts

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// passive are the media types that a browser may show: none of them can hold a program (pitfall H08). Everything else
// is downloaded.
var passive = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "text/plain": true}

// Passive gives the media type under which content of a type is served, and whether it may be shown.
func Passive(detected string) (mediaType string, shown bool) {
	base, _, err := mime.ParseMediaType(detected)
	if err != nil || !passive[base] {
		return "application/octet-stream", false
	}
	if base == "text/plain" {
		base += "; charset=utf-8"
	}
	return base, true
}

// Serve answers GET and HEAD for an artifact of owner's (RFC 9110): a strong ETag, If-Match, If-None-Match and
// If-Range, one range or its suffix; a Range that cannot be read, or that asks for several, is passed over, one that
// lies behind the end is 416. It never shows what could be a program. What is not the owner's is 404.
func (s *Store) Serve(w http.ResponseWriter, r *http.Request, owner, id string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if len(id) != idLength { // a beginning is for people who type
		s.serveError(w, &NotFoundError{id})
		return
	}
	a, f, err := s.Open(r.Context(), owner, id)
	if err != nil {
		s.serveError(w, err)
		return
	}
	defer f.Close()
	etag := `"` + a.SHA256 + `"`
	mediaType, shown := Passive(a.Type)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", etag)
	if status := precondition(r, etag); status != 0 {
		w.WriteHeader(status)
		return
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Disposition", disposition(a.Name, shown))
	h.Set("Accept-Ranges", "bytes")
	first, length, status := int64(0), a.Bytes, http.StatusOK
	if r.Method == http.MethodGet && ifRange(r.Header.Get("If-Range"), etag) {
		if start, n, ok := parseRange(r.Header.Values("Range"), a.Bytes); ok && n > 0 {
			first, length, status = start, n, http.StatusPartialContent
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+n-1, a.Bytes))
		} else if ok {
			h.Del("Content-Type")
			h.Del("Content-Disposition")
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", a.Bytes))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
	}
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.Copy(w, io.NewSectionReader(f, first, length)); err != nil {
		s.log.Debug("an artifact was not sent whole", "error", err)
	}
}

func (s *Store) serveError(w http.ResponseWriter, err error) {
	var none *NotFoundError
	var several *AmbiguousError
	if errors.As(err, &none) || errors.As(err, &several) {
		http.Error(w, "there is no such artifact", http.StatusNotFound)
		return
	}
	s.log.Error("an artifact could not be opened", "error", err)
	http.Error(w, "the artifact cannot be read", http.StatusInternalServerError)
}

// precondition is RFC 9110 §13.2.2 without dates, since no Last-Modified is given: 0 to go on.
func precondition(r *http.Request, etag string) int {
	if match := r.Header.Values("If-Match"); len(match) > 0 {
		if !anyTag(match, func(tag string) bool { return tag == "*" || tag == etag }) {
			return http.StatusPreconditionFailed
		}
	}
	none := r.Header.Values("If-None-Match")
	if anyTag(none, func(tag string) bool { return tag == "*" || strings.TrimPrefix(tag, "W/") == etag }) {
		return http.StatusNotModified
	}
	return 0
}

// anyTag looks at each entity tag of a list. Ours hold no comma, so one that does is another's.
func anyTag(values []string, fits func(string) bool) bool {
	for _, v := range values {
		for tag := range strings.SplitSeq(v, ",") {
			if fits(strings.TrimSpace(tag)) {
				return true
			}
		}
	}
	return false
}

// ifRange says whether a Range counts: only an equal strong tag says that it is about this content (§13.1.5).
func ifRange(value, etag string) bool {
	return value == "" || strings.TrimSpace(value) == etag
}

// parseRange reads the one range of a Range header over size bytes. ok is false where it is to be passed over; length
// is 0 where it cannot be satisfied.
func parseRange(values []string, size int64) (first, length int64, ok bool) {
	if len(values) != 1 {
		return 0, 0, false
	}
	unit, set, found := strings.Cut(values[0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || strings.Contains(set, ",") {
		return 0, 0, false
	}
	from, to, found := strings.Cut(strings.Trim(set, " \t"), "-")
	if !found {
		return 0, 0, false
	}
	if from == "" {
		n, ok := position(to)
		return size - min(n, size), min(n, size), ok
	}
	first, ok = position(from)
	if !ok {
		return 0, 0, false
	}
	last := size - 1
	if to != "" {
		end, ok := position(to)
		if !ok || end < first {
			return 0, 0, false
		}
		last = min(last, end)
	}
	if first >= size {
		return 0, 0, true
	}
	return first, last - first + 1, true
}

// position reads a byte position; one that no file has is the largest number.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}

// disposition names the file: in ASCII for old readers, and whole (RFC 6266).
func disposition(name string, shown bool) string {
	kind := "attachment"
	if shown {
		kind = "inline"
	}
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, name)
	text := kind + `; filename="` + ascii + `"`
	if ascii != name {
		text += "; filename*=UTF-8''" + percent(name)
	}
	return text
}

// percent writes what RFC 8187 calls ext-value characters.
func percent(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
