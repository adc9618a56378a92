package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"

	"github.com/handlerd/handler/sandbox"
)

// Images holds and builds images in the same storage that the Driver's sandboxes are made from. Its methods may be
// called concurrently. Their errors are *sandbox.EngineError, *sandbox.SpecError and *sandbox.ImageNotFoundError.
type Images struct{ d *Driver }

// Images gives the images of d. They are usable until d is closed.
func (d *Driver) Images() *Images { return &Images{d} }

// An imageAnswer is what inspecting or listing an image says, in the spelling of every version since 4.3.
type imageAnswer struct {
	ID       string `json:"Id"`
	RepoTags []string
	Labels   map[string]string
	Created  any // a number of seconds in a list, a time when inspected
	Size     int64
}

func (a imageAnswer) image() (sandbox.Image, error) {
	image := sandbox.Image{ID: strings.TrimPrefix(a.ID, "sha256:"), Tags: a.RepoTags, Labels: a.Labels, Bytes: a.Size}
	switch created := a.Created.(type) {
	case float64:
		image.Created = time.Unix(int64(created), 0)
	case string:
		t, err := time.Parse(time.RFC3339Nano, created)
		if err != nil {
			return image, fmt.Errorf("image %s: %w", image.ID, err)
		}
		image.Created = t
	}
	return image, nil
}

// Inspect returns one local image, or an *sandbox.ImageNotFoundError. No registry is asked.
func (i *Images) Inspect(ctx context.Context, ref string) (sandbox.Image, error) {
	if checkImage("image", ref) != nil {
		return sandbox.Image{}, &sandbox.ImageNotFoundError{Ref: ref}
	}
	api, _, err := i.d.ready(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	var answer imageAnswer
	if err := get(api, &answer, nil, "/images/%s/json", ref); err != nil {
		if statusCode(err) == http.StatusNotFound {
			return sandbox.Image{}, &sandbox.ImageNotFoundError{Ref: ref}
		}
		return sandbox.Image{}, i.d.engineError("inspect image", i.d.failed(err))
	}
	image, err := answer.image()
	if err != nil {
		return sandbox.Image{}, i.d.engineError("inspect image", err)
	}
	return image, nil
}

// List returns the local images that carry all of labels, those without a tag too.
func (i *Images) List(ctx context.Context, labels map[string]string) ([]sandbox.Image, error) {
	api, _, err := i.d.ready(ctx)
	if err != nil {
		return nil, err
	}
	var answers []imageAnswer
	if err := get(api, &answers, url.Values{"all": {"false"}}, "/images/json"); err != nil {
		return nil, i.d.engineError("list images", i.d.failed(err))
	}
	found := make([]sandbox.Image, 0, len(answers))
	for _, a := range answers {
		if !hasLabels(a.Labels, labels) {
			continue
		}
		image, err := a.image()
		if err != nil {
			return nil, i.d.engineError("list images", err)
		}
		found = append(found, image)
	}
	return found, nil
}

// Import makes an image of one layer from a tar stream of a root file system, in any compression that podman knows.
// The stream is passed on as it comes; podman keeps a copy of it in StateDir while it works.
func (i *Images) Import(ctx context.Context, rootfs io.Reader, tag string, labels map[string]string) (string, error) {
	if err := checkImage("tag", tag); err != nil {
		return "", err
	}
	changes, err := labelChanges(labels)
	if err != nil {
		return "", err
	}
	i.d.building.Lock()
	defer i.d.building.Unlock()
	ctx, cancel := i.d.untilClose(ctx)
	defer cancel()
	api, _, err := i.d.ready(ctx)
	if err != nil {
		return "", err
	}
	old := i.tagged(ctx, tag)
	source := &onceReader{r: rootfs}
	report, err := images.Import(api, source, &images.ImportOptions{Changes: &changes, Reference: &tag})
	if source.err != nil && !errors.Is(source.err, io.EOF) {
		return "", fmt.Errorf("sandbox engine: import image: reading the root file system: %w", source.err)
	}
	if err != nil {
		return "", i.d.engineError("import image", i.d.failed(err))
	}
	id := strings.TrimPrefix(report.Id, "sha256:")
	i.dropOld(ctx, old, id)
	return id, nil
}

// labelChanges writes labels as instructions of a Containerfile.
func labelChanges(labels map[string]string) ([]string, error) {
	if err := checkLabelSyntax(labels); err != nil {
		return nil, err
	}
	var changes []string
	for name, value := range labels {
		if strings.ContainsAny(value, "\"\\$`\r\n") {
			// Versions of podman differ in how they read such an instruction.
			return nil, specError("label", "the value of %s has a quote, backslash, dollar, backtick or line end", name)
		}
		changes = append(changes, fmt.Sprintf(`LABEL "%s"="%s"`, name, value))
	}
	slices.Sort(changes)
	return changes, nil
}

// A onceReader refuses to be read again after its end or an error: the bindings send a request anew when its
// connection breaks, and would send the rest of a stream as if it were the whole.
type onceReader struct {
	r   io.Reader
	err error
}

var errReadAgain = errors.New("the connection to podman broke")

func (o *onceReader) Read(p []byte) (int, error) {
	if o.err != nil {
		return 0, errReadAgain
	}
	n, err := o.r.Read(p)
	if err != nil {
		o.err = err
	}
	return n, err
}

// Remove removes an image's tag, and the image when that was its last, with those of its parents that have no tag
// and no other child. An image that a sandbox is made of stays, and is an error. Removing what is gone is no error.
func (i *Images) Remove(ctx context.Context, ref string) error {
	if checkImage("image", ref) != nil {
		return nil
	}
	i.d.building.Lock()
	defer i.d.building.Unlock()
	api, _, err := i.d.ready(ctx)
	if err != nil {
		return err
	}
	_, errs := images.Remove(api, []string{ref}, nil)
	err = errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case statusCode(err) == http.StatusNotFound || strings.Contains(err.Error(), "image not known"):
		return nil
	case statusCode(err) == http.StatusConflict || strings.Contains(err.Error(), "image is in use") || strings.Contains(err.Error(), "image used by"):
		return &sandbox.EngineError{Op: "remove image", Err: fmt.Errorf("a sandbox is made of %s: %w", ref, err), Hint: "end its run first: handler ps"}
	}
	return i.d.engineError("remove image", i.d.failed(err))
}
