package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/handlerd/handler/handlerd/acp/pictures"
)

// keptTimeout bounds how long a picture is waited for.
const keptTimeout = 10 * time.Second

// An album is the pictures of a run, each once. handlerd keeps them, as artifacts, of every client's runs: here is only
// found which there are.
type album struct {
	seen  map[[sha256.Size]byte]bool
	saved []Image
	lost  bool // that one was not kept was said
}

// images shows the pictures in raw and where they are; t is the tool call that gave them, nil for the answer's own. It
// runs with mu held.
func (r *run) images(ctx context.Context, t *tool, raw json.RawMessage) {
	if r.opts.Kept == nil {
		return
	}
	pictures.Find(raw, func(b64 string) {
		id := ""
		if t != nil {
			id = t.ToolCallID
		}
		img, err := r.picture(ctx, b64)
		if err != nil {
			r.notice("warning", err.Error())
		} else if img != nil {
			r.screen.emit(event{Event: evImage, Tool: id, Path: img.Path, Artifact: img.ID, MediaType: img.MediaType, Bytes: img.Bytes, SHA256: img.SHA256})
		}
	})
}

// picture gives where a picture is kept; nil for one that was shown before, and an error that a person can read for one
// that is not kept.
func (r *run) picture(ctx context.Context, b64 string) (*Image, error) {
	data, media, _, err := pictures.Decode(b64)
	if err != nil {
		return nil, fmt.Errorf("%w; it was not kept", err)
	}
	sum := sha256.Sum256(data)
	if r.album.seen[sum] {
		return nil, nil
	}
	if r.album.seen == nil {
		r.album.seen = map[[sha256.Size]byte]bool{}
	}
	r.album.seen[sum] = true
	ctx, cancel := context.WithTimeout(ctx, keptTimeout)
	defer cancel()
	img := Image{MediaType: media, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}
	if img.ID, img.Path, err = r.opts.Kept(ctx, img.SHA256); err != nil {
		if r.album.lost {
			return nil, nil // it was said
		}
		r.album.lost = true
		if errors.Is(err, ErrNotKept) {
			return nil, fmt.Errorf("a picture of %s was not kept; why, and what to do: handler logs %s", size(img.Bytes), r.opts.Run)
		}
		return nil, fmt.Errorf("where a picture of %s is kept is not known: %w", size(img.Bytes), err)
	}
	r.album.saved = append(r.album.saved, img)
	return &img, nil
}
