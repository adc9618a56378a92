package approvals

import (
	"bytes"
	"errors"
	"image"
	_ "image/jpeg" // the browser gives either
	"image/png"

	"golang.org/x/image/draw"
)

// Bounds of the picture of a question.
const (
	PictureWidth  = 480
	PictureHeight = 320
	PictureBytes  = 64 << 10

	maxPictureIn = 4 << 20   // bytes of one that is decoded at all
	maxPixelsIn  = 4_000_000 // and pixels
)

var errPicture = errors.New("no picture that can be shown")

// small decodes a picture and makes a PNG within the bounds of it: nothing of the bytes that came is in what goes out.
func small(data []byte) (out []byte, width, height int, err error) {
	if len(data) == 0 || len(data) > maxPictureIn {
		return nil, 0, 0, errPicture
	}
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || config.Width <= 0 || config.Height <= 0 || config.Width > maxPixelsIn/config.Height {
		return nil, 0, 0, errPicture
	}
	from, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, 0, 0, errPicture
	}
	width, height = config.Width, config.Height
	if width > PictureWidth {
		width, height = PictureWidth, max(1, height*PictureWidth/width)
	}
	if height > PictureHeight {
		width, height = max(1, width*PictureHeight/height), PictureHeight
	}
	for range 12 { // each is about half as large; a few pixels always fit
		to := image.NewNRGBA(image.Rect(0, 0, width, height))
		draw.ApproxBiLinear.Scale(to, to.Bounds(), from, from.Bounds(), draw.Src, nil)
		var b bytes.Buffer
		if err := png.Encode(&b, to); err != nil {
			return nil, 0, 0, err
		}
		if b.Len() <= PictureBytes {
			return b.Bytes(), width, height, nil
		}
		width, height = max(1, width*3/4), max(1, height*3/4)
	}
	return nil, 0, 0, errPicture
}
