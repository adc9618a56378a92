package agents

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/sandbox"
)

// A Display says what windows of an agent are shown on (A.6). In a file it is true or false too.
type Display string

// Values of Agent.Display.
const (
	DisplayNone    Display = ""        // false: no windows
	DisplayWayland Display = "wayland" // true: the person's own compositor
	DisplayVNC     Display = "vnc"     // a compositor that the sandbox has to itself, watched on the page
)

// DefaultDisplaySize is that of a display of the sandbox's own.
const DefaultDisplaySize = "1280x800"

// ParseDisplay reads what a person writes: true, false, "wayland" or "vnc".
func ParseDisplay(text string) (Display, error) {
	switch text {
	case "false", "none":
		return DisplayNone, nil
	case "true", string(DisplayWayland):
		return DisplayWayland, nil
	case string(DisplayVNC):
		return DisplayVNC, nil
	}
	return "", fmt.Errorf("display = %q must be true (your own screen), \"vnc\" (one of the sandbox's own) or false", configfile.Clip(text))
}

// Mode is the display in a word: "none", "wayland" or "vnc".
func (d Display) Mode() string { return cmp.Or(string(d), "none") }

// UnmarshalTOML reads a boolean or a string, as it stands in the file.
func (d *Display) UnmarshalTOML(data []byte) error {
	text := strings.TrimSpace(string(data))
	if unquoted := strings.Trim(text, `"'`); unquoted != text {
		text = unquoted
	} else if text != "true" && text != "false" {
		text = "" // a number, an array, a table
	}
	parsed, err := ParseDisplay(text)
	if err != nil {
		return configfile.ValueError(data, err.Error())
	}
	*d = parsed
	return nil
}

// SetDisplay says whether, and on what, runs show windows: as ParseDisplay reads it.
func (a *Agent) SetDisplay(text string) error {
	d, err := ParseDisplay(text)
	if err == nil {
		a.Display = d
	}
	return err
}

// ScreenSize gives the pixels of a display of the sandbox's own.
func (a *Agent) ScreenSize() (width, height int, err error) {
	text := a.DisplaySize
	if text == "" {
		text = DefaultDisplaySize
	}
	w, h, ok := strings.Cut(text, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if !ok || errW != nil || errH != nil {
		return 0, 0, fmt.Errorf("display_size = %q must be WIDTHxHEIGHT, such as %q", configfile.Clip(text), DefaultDisplaySize)
	}
	if err := (sandbox.Display{Mode: sandbox.DisplayVNC, Width: width, Height: height}).CheckScreen(); err != nil {
		return 0, 0, fmt.Errorf("display_size: %w", err)
	}
	return width, height, nil
}

func (a *Agent) checkDisplay() error {
	if _, err := ParseDisplay(string(a.Display)); a.Display != DisplayNone && err != nil {
		return err
	}
	_, _, err := a.ScreenSize()
	return err
}
