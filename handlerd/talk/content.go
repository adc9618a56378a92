package talk

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/acp/pictures"
	"github.com/handlerd/handler/handlerd/fault"
)

// Bounds of a prompt.
const (
	// MaxPromptBytes bounds a prompt's content, as JSON with its pictures in base64: agents take lines of 32 MiB.
	MaxPromptBytes = 31 << 20
	// MaxPromptBlocks bounds the pieces of a prompt.
	MaxPromptBlocks = 256
)

// TooLong is the error for a prompt of size bytes, which are over MaxPromptBytes; size is 0 where it is not known.
func TooLong(size int64) error {
	has := ""
	if size > 0 {
		has = fmt.Sprintf("; this one has %.1f MiB", float64(size)/(1<<20))
	}
	return fault.New(fault.Refused, "save it as a file in a folder that the agent sees, and name the file in the message",
		"refused by P7: a message takes at most %d MiB, its pictures and files counted in%s", MaxPromptBytes>>20, has)
}

// parsePrompt reads a prompt strictly: ACP's content blocks, of the types that people send.
func parsePrompt(content json.RawMessage) ([]jsonrpc.ContentBlock, error) {
	if len(content) > MaxPromptBytes {
		return nil, TooLong(int64(len(content)))
	}
	var blocks []jsonrpc.ContentBlock
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, fault.New(fault.Usage, "send ACP's content blocks: [{\"type\":\"text\",\"text\":\"…\"}]", "the message has a wrong shape: %v", err)
	}
	if len(blocks) == 0 {
		return nil, fault.New(fault.Usage, "say what the agent is to do", "the message is empty")
	}
	if len(blocks) > MaxPromptBlocks {
		return nil, fault.New(fault.Refused, "send less at a time", "refused by P7: a message has at most %d pieces; this one has %d", MaxPromptBlocks, len(blocks))
	}
	said := false
	for i, b := range blocks {
		if err := checkBlock(b); err != nil {
			return nil, fault.New(fault.Usage, "", "piece %d of the message: %v", i+1, err)
		}
		said = said || b.Type != jsonrpc.BlockText || b.Text != ""
	}
	if !said {
		return nil, fault.New(fault.Usage, "say what the agent is to do", "the message is empty")
	}
	return blocks, nil
}

// checkBlock says what is wrong with a piece of a prompt.
func checkBlock(b jsonrpc.ContentBlock) error {
	switch b.Type {
	case jsonrpc.BlockText:
		return nil
	case jsonrpc.BlockImage:
		return checkPicture(b)
	case jsonrpc.BlockAudio:
		if _, err := base64.StdEncoding.DecodeString(b.Data); err != nil || b.Data == "" || b.MimeType == "" {
			return fmt.Errorf("the sound is no valid base64, or has no mimeType")
		}
		return nil
	case jsonrpc.BlockResourceLink:
		if b.Name == "" {
			return fmt.Errorf("a link to a file has a name")
		}
		return checkURI(b.URI)
	case jsonrpc.BlockResource:
		if b.Resource == nil {
			return fmt.Errorf("an embedded file has a resource")
		}
		if (b.Resource.Text != "") && (b.Resource.Blob != "") {
			return fmt.Errorf("an embedded file is text or blob, not both")
		}
		if _, err := base64.StdEncoding.DecodeString(b.Resource.Blob); err != nil {
			return fmt.Errorf("the embedded file is no valid base64")
		}
		return checkURI(b.Resource.URI)
	}
	return fmt.Errorf("its type %q is none of text, image, audio, resource and resource_link", clip(b.Type))
}

func checkURI(uri string) error {
	if u, err := url.Parse(uri); err != nil || u.Scheme == "" || len(uri) > maxMessage {
		return fmt.Errorf("%q is no URI, such as file:///folder/file", clip(uri))
	}
	return nil
}

// checkPicture wants a picture by its bytes, and the type that they say: an agent that is told otherwise fails later,
// and not so that a person understands it.
func checkPicture(b jsonrpc.ContentBlock) error {
	data, err := base64.StdEncoding.DecodeString(b.Data)
	if err != nil {
		return fmt.Errorf("the picture is no valid base64")
	}
	if len(data) > pictures.MaxBytes {
		return fmt.Errorf("the picture has %.1f MiB; a picture has at most %d MiB", float64(len(data))/(1<<20), pictures.MaxBytes>>20)
	}
	media, _ := pictures.Sniff(data)
	if media == "" {
		return fmt.Errorf("it says it is a picture, and is no png, jpeg, webp or gif")
	}
	if media != b.MimeType {
		return fmt.Errorf("the picture is %s and not %q", media, clip(b.MimeType))
	}
	return nil
}

// takes says what of a prompt the agent does not take.
func (c *conversation) takes(blocks []jsonrpc.ContentBlock) error {
	can := c.init.AgentCapabilities.PromptCapabilities
	for _, b := range blocks {
		what := ""
		switch {
		case b.Type == jsonrpc.BlockImage && !can.Image:
			what = "pictures"
		case b.Type == jsonrpc.BlockAudio && !can.Audio:
			what = "sound"
		case b.Type == jsonrpc.BlockResource && !can.EmbeddedContext:
			what = "embedded files"
		}
		if what != "" {
			return fault.New(fault.Refused, "save it in a folder that the agent sees, and name the file in the message", "%s takes no %s", c.agent, what)
		}
	}
	return nil
}
