package runner

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/acp/pictures"
)

// maxAttached bounds the pictures of a prompt together: agents take lines of 32 MiB, and base64 makes four bytes of
// three.
const maxAttached = 23 << 20

// attach reads the pictures that go with a prompt.
func attach(files []string) ([]jsonrpc.ContentBlock, error) {
	var blocks []jsonrpc.ContentBlock
	total := 0
	for _, path := range files {
		data, err := readImage(path)
		if err != nil {
			return nil, err
		}
		media, _ := pictures.Sniff(data)
		if media == "" {
			return nil, fmt.Errorf("%s is no png, jpeg, webp or gif picture", path)
		}
		if total += len(data); total > maxAttached {
			return nil, fmt.Errorf("the pictures have more than %s together, which is what agents take in one prompt", size(maxAttached))
		}
		blocks = append(blocks, jsonrpc.ContentBlock{Type: jsonrpc.BlockImage, Data: base64.StdEncoding.EncodeToString(data), MimeType: media})
	}
	return blocks, nil
}

func readImage(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the picture: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, pictures.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the picture: %w", err)
	}
	if len(data) > pictures.MaxBytes {
		return nil, fmt.Errorf("%s has more than %s, which is the bound of a picture", path, size(pictures.MaxBytes))
	}
	return data, nil
}
