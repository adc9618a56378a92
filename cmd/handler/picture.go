package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
)

// keepPictures is how long the pictures of questions stay in the cache.
const keepPictures = 24 * time.Hour

// pictureText shows the picture of a question on f: in place where the terminal says that it can, else by the path of a
// file that only the person reads. A picture that cannot be had is a remark, and the question is asked all the same.
func (u *ui) pictureText(ctx context.Context, c *client.Client, d dirs.Dirs, a types.Approval, f *os.File) string {
	if a.Browser == nil || a.Browser.Picture == nil {
		return ""
	}
	png, err := c.ApprovalPicture(ctx, a.ID)
	if err != nil {
		return "  there is no picture: " + plain(err.Error()) + "\n"
	}
	if terminal(f) {
		if text := inlinePicture(u.getenv, png); text != "" {
			return text
		}
	}
	path, err := savePicture(filepath.Join(d.Cache, "approvals"), shortID(a.ID), png)
	if err != nil {
		return "  the picture was not saved: " + plain(err.Error()) + "\n"
	}
	return "  a picture of it: " + plain(tilde(path, d.Home)) + "\n"
}

// savePicture puts a picture into a folder of the person's own, and takes old ones away.
func savePicture(dir, name string, png []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if old, err := os.ReadDir(dir); err == nil {
		for _, e := range old {
			if info, err := e.Info(); err == nil && filepath.Ext(e.Name()) == ".png" && time.Since(info.ModTime()) > keepPictures {
				_ = os.Remove(filepath.Join(dir, e.Name())) // another one may have done it
			}
		}
	}
	f, err := os.CreateTemp(dir, "new-*.png") // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(png)
	if closing := f.Close(); err == nil {
		err = closing
	}
	path := filepath.Join(dir, name+".png")
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return path, nil
}

// inlinePicture writes a picture as the terminal takes it; "" where it does not say that it takes any. A multiplexer in
// between would not pass it on.
func inlinePicture(getenv func(string) string, png []byte) string {
	name, program := getenv("TERM"), getenv("TERM_PROGRAM")
	data := base64.StdEncoding.EncodeToString(png)
	switch {
	case getenv("TMUX") != "" || strings.HasPrefix(name, "tmux") || strings.HasPrefix(name, "screen"):
		return ""
	case name == "xterm-kitty" || name == "xterm-ghostty" || getenv("KITTY_WINDOW_ID") != "" || program == "ghostty":
		return kittyPicture(data)
	case program == "iTerm.app" || program == "WezTerm" || program == "mintty":
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a\n", len(png), data)
	}
	return ""
}

// kittyChunk is the most that one escape sequence of kitty's protocol holds, in bytes of base64.
const kittyChunk = 4096

// kittyPicture writes a PNG in kitty's graphics protocol.
func kittyPicture(data string) string {
	var out strings.Builder
	control := "f=100,a=T,q=2," // PNG, shown at once, no answer
	for len(data) > 0 {
		part := data[:min(len(data), kittyChunk)]
		data = data[len(part):]
		more := 0
		if len(data) > 0 {
			more = 1
		}
		fmt.Fprintf(&out, "\x1b_G%sm=%d;%s\x1b\\", control, more, part)
		control = ""
	}
	return out.String() + "\n"
}
