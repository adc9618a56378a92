// Package pictures finds the pictures in what agents say of their tool calls. Agents send them in several shapes and
// often the same one thrice; it reads them without decoding what is around them, since an agent decides what that is.
package pictures

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// Bounds of what is looked for.
const (
	MaxBytes = 20 << 20 // of one picture
	maxDepth = 8        // of the JSON that a picture is looked for in
	maxNodes = 10_000   // values of it that are looked at
)

// May tells quickly whether a picture may be in raw: false is certain.
func May(raw []byte) bool {
	return bytes.Contains(raw, []byte(`"data"`)) || bytes.Contains(raw, []byte(`"blob"`))
}

// Find calls visit with the base64 of everything in raw, one JSON value, that says it is a picture, in the shapes that
// agents use: ACP and MCP {type:"image",data}, Anthropic {type:"image",source:{data}}, embedded resources {blob}. What
// lies in a "_meta" is a repetition for somebody else.
func Find(raw []byte, visit func(base64 string)) {
	if !May(raw) {
		return
	}
	whole, err := rawjson.Whole(raw)
	if err != nil {
		return
	}
	f := finder{b: raw, visit: visit}
	f.value(whole, 0)
}

type finder struct {
	b     []byte
	nodes int
	visit func(string)
}

func (f *finder) value(s rawjson.Span, depth int) {
	if f.nodes++; depth > maxDepth || f.nodes > maxNodes {
		return
	}
	switch f.b[s.Start] {
	case '[':
		items, err := rawjson.ParseArray(f.b, s, maxNodes)
		if err != nil {
			return
		}
		for _, item := range items {
			f.value(item, depth+1)
		}
	case '{':
		f.object(s, depth)
	}
}

func (f *finder) object(s rawjson.Span, depth int) {
	var members []rawjson.Member
	if rawjson.Members(f.b, s, func(m rawjson.Member) error {
		if len(members) >= maxNodes {
			return errors.New("too many members")
		}
		members = append(members, m)
		return nil
	}) != nil {
		return
	}
	get := func(name string) rawjson.Span {
		for _, m := range members {
			if m.Name == name {
				return m.Value
			}
		}
		return rawjson.Span{}
	}
	if kind, _ := f.text(get("type")); kind == "image" {
		f.show(get("data"))
		if source := get("source"); source.Present() && f.b[source.Start] == '{' {
			_ = rawjson.Members(f.b, source, func(m rawjson.Member) error {
				if m.Name == "data" {
					f.show(m.Value)
				}
				return nil
			})
		}
		return
	}
	if blob := get("blob"); blob.Present() && f.b[blob.Start] == '"' {
		if media, ok := f.text(get("mimeType")); !ok || strings.HasPrefix(media, "image/") {
			f.show(blob)
		}
		return
	}
	for _, m := range members {
		if m.Name != "_meta" {
			f.value(m.Value, depth+1)
		}
	}
}

// text gives a short string.
func (f *finder) text(s rawjson.Span) (string, bool) {
	if !s.Present() || f.b[s.Start] != '"' || s.End-s.Start > 200 {
		return "", false
	}
	v, err := rawjson.String(f.b, s)
	return v, err == nil
}

func (f *finder) show(s rawjson.Span) {
	if !s.Present() || f.b[s.Start] != '"' {
		return
	}
	if v, err := rawjson.String(f.b, s); err == nil {
		f.visit(v)
	}
}

// Decode gives a picture, and the ending of a file's name that goes with what it is: only png, jpeg, gif and webp are
// pictures, by their first bytes. The error is for people.
func Decode(b64 string) (data []byte, mediaType, ext string, err error) {
	if strings.HasPrefix(b64, "data:") {
		if i := strings.Index(b64[:min(len(b64), 200)], ";base64,"); i >= 0 {
			b64 = b64[i+len(";base64,"):]
		}
	}
	if n := base64.StdEncoding.DecodedLen(len(b64)); n > MaxBytes+2 {
		return nil, "", "", fmt.Errorf("a picture of %d MiB is over the bound of %d MiB", n>>20, MaxBytes>>20)
	}
	data, err = base64.StdEncoding.DecodeString(b64)
	if err != nil {
		data, err = base64.RawStdEncoding.DecodeString(b64)
	}
	if err != nil {
		return nil, "", "", errors.New("a picture was not valid base64")
	}
	if mediaType, ext = Sniff(data); mediaType == "" {
		return nil, "", "", errors.New("what the agent sent as a picture is no png, jpeg, webp or gif")
	}
	return data, mediaType, ext, nil
}

// Sniff recognises the four kinds of picture by their first bytes; "" for others.
func Sniff(b []byte) (mediaType, ext string) {
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
