package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of what is saved.
const (
	maxImage      = 20 << 20 // bytes of one picture
	maxImages     = 100      // pictures of a run
	maxImageDepth = 8        // of the JSON that a picture is looked for in
	maxImageNodes = 10_000
)

// findImages calls visit with the base64 of everything in raw that says it is a picture, in the shapes that agents
// use: ACP and MCP {type:"image",data}, Anthropic {type:"image",source:{data}}, embedded resources {blob}.
func findImages(raw json.RawMessage, visit func(b64 string)) {
	if !bytes.Contains(raw, []byte(`"data"`)) && !bytes.Contains(raw, []byte(`"blob"`)) {
		return
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return
	}
	nodes := 0
	walkImages(v, 0, &nodes, visit)
}

func walkImages(v any, depth int, nodes *int, visit func(string)) {
	if *nodes++; depth > maxImageDepth || *nodes > maxImageNodes {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			walkImages(x, depth+1, nodes, visit)
		}
	case map[string]any:
		if v["type"] == "image" {
			source, _ := v["source"].(map[string]any)
			for _, data := range []any{v["data"], source["data"]} {
				if s, ok := data.(string); ok {
					visit(s)
				}
			}
			return
		}
		if s, ok := v["blob"].(string); ok {
			if media, ok := v["mimeType"].(string); !ok || strings.HasPrefix(media, "image/") {
				visit(s)
			}
			return
		}
		for key, x := range v {
			if key != "_meta" {
				walkImages(x, depth+1, nodes, visit)
			}
		}
	}
}

// sniff recognises the four kinds of picture that are saved by their first bytes.
func sniff(b []byte) (media, ext string) {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png", "png"
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return "image/jpeg", "jpg"
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return "image/gif", "gif"
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return "image/webp", "webp"
	}
	return "", ""
}

// An album saves pictures into one folder, each once.
type album struct {
	dir    string
	seen   map[[sha256.Size]byte]bool
	saved  []Image
	number int
	full   bool // the bound was said
}

// add decodes and saves a picture; name is what it is of. It gives nil for one that was saved before, and an error
// that a person can read for one that is not saved.
func (a *album) add(name, b64 string) (*Image, error) {
	if _, after, ok := strings.Cut(b64, ";base64,"); ok && strings.HasPrefix(b64, "data:") {
		b64 = after
	}
	if base64.StdEncoding.DecodedLen(len(b64)) > maxImage+2 {
		return nil, fmt.Errorf("a picture of %s is over the bound of %s and was not saved", size(base64.StdEncoding.DecodedLen(len(b64))), size(maxImage))
	}
	data, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		data, err = base64.RawStdEncoding.DecodeString(b64)
	}
	if err != nil {
		return nil, errors.New("a picture was not valid base64 and was not saved")
	}
	media, ext := sniff(data)
	if media == "" {
		return nil, errors.New("what the agent sent as a picture is no png, jpeg, webp or gif and was not saved")
	}
	sum := sha256.Sum256(data)
	if a.seen[sum] {
		return nil, nil
	}
	if len(a.saved) >= maxImages {
		if a.full {
			return nil, nil
		}
		a.full = true
		return nil, fmt.Errorf("the run has %d pictures, which is the bound: no more are saved", maxImages)
	}
	path, err := a.write(slug(name), ext, data)
	if err != nil {
		return nil, fmt.Errorf("save a picture: %w", err)
	}
	if a.seen == nil {
		a.seen = map[[sha256.Size]byte]bool{}
	}
	a.seen[sum] = true
	img := Image{Path: path, MediaType: media, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}
	a.saved = append(a.saved, img)
	return &img, nil
}

// write puts data into a new file of mode 0600 in one step. A name that is taken is passed over: a folder may hold the
// pictures of an earlier run.
func (a *album) write(name, ext string, data []byte) (string, error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(a.dir, ".new-*") // 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", err
	}
	for {
		a.number++
		path := filepath.Join(a.dir, fmt.Sprintf("%s-%d.%s", name, a.number, ext))
		// A link, unlike a rename, never replaces a file.
		if err := os.Link(tmp.Name(), path); err == nil || !errors.Is(err, fs.ErrExist) {
			return path, err
		}
	}
}

// slug makes a file name of a tool's name.
func slug(name string) string {
	_, after, ok := strings.Cut(name, ": ")
	if ok {
		name = after
	}
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			b.WriteRune(r)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
		if b.Len() >= 40 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "picture"
}
