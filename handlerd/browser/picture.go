package browser

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // upstream gives either
	"image/png"

	"golang.org/x/image/draw"
)

// Bounds of pictures (F.7).
const (
	ModelSide     = 1568    // pixels of a side of a picture that a model gets
	ModelBytes    = 4 << 20 // bytes of one
	MaxPageWidth  = 4096    // pixels of a picture of a whole page
	MaxPageHeight = 10000
	MaxPageParts  = 4        // pictures that one of a whole page is kept as, one below the other
	QuestionSide  = 400      // pixels of a side of the picture of a question
	QuestionBytes = 64 << 10 // bytes of one
	maxPixels     = 48 << 20 // of a picture that is decoded at all
)

// A pictureBound says how large a picture may be: crop cuts it to its top left corner first.
type pictureBound struct {
	side  int
	bytes int
	crop  bool
}

var (
	modelPicture    = pictureBound{side: ModelSide, bytes: ModelBytes}
	croppedPicture  = pictureBound{side: ModelSide, bytes: ModelBytes, crop: true}
	questionPicture = pictureBound{side: QuestionSide, bytes: QuestionBytes}
)

// A picture is one that was decoded and encoded again: nothing of the bytes that the sandbox gave is in it.
type picture struct {
	data          []byte // PNG
	width, height int
	fromW, fromH  int // of the one it was made of
}

// scale makes a picture fit a bound.
func scale(data []byte, b pictureBound) (picture, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return picture{}, errors.New("the browser gave no picture")
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > maxPixels/config.Height {
		return picture{}, fmt.Errorf("a picture of %d×%d pixels is too large", config.Width, config.Height)
	}
	from, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return picture{}, errors.New("the browser gave a broken picture")
	}
	p := picture{fromW: config.Width, fromH: config.Height}
	area := from.Bounds()
	if b.crop && area.Dx() > 0 {
		// As much of the top as fits when the width does.
		area.Max.Y = min(area.Max.Y, area.Min.Y+max(b.side, area.Dx()))
	}
	for side := b.side; side >= 16; side = side * 3 / 4 {
		p.width, p.height = fit(area.Dx(), area.Dy(), side)
		to := image.NewRGBA(image.Rect(0, 0, p.width, p.height))
		if p.width == area.Dx() && p.height == area.Dy() {
			draw.Copy(to, image.Point{}, from, area, draw.Src, nil)
		} else {
			draw.ApproxBiLinear.Scale(to, to.Bounds(), from, area, draw.Src, nil)
		}
		var out bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestSpeed}
		if err := encoder.Encode(&out, to); err != nil {
			return picture{}, err
		}
		if out.Len() <= b.bytes {
			p.data = out.Bytes()
			return p, nil
		}
	}
	return picture{}, errors.New("the picture cannot be made small enough")
}

// fit gives the size at which width×height has no side over the bound, its shape kept.
func fit(width, height, side int) (w, h int) {
	long := max(width, height)
	if long <= side {
		return width, height
	}
	return max(1, width*side/long), max(1, height*side/long)
}
