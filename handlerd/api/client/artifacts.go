package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// An ArtifactFilter narrows Artifacts; empty fields narrow nothing. Run may be the beginning of a run's id.
type ArtifactFilter struct{ Run, Session, Agent string }

func (f ArtifactFilter) query() string {
	return withQuery(types.PathArtifacts, url.Values{"run": {f.Run}, "session": {f.Session}, "agent": {f.Agent}})
}

func artifactPath(id string) string { return types.PathArtifacts + "/" + url.PathEscape(id) }

// Artifacts gives the artifacts, oldest first, with all that live runs have shown so far, and what fills the store.
func (c *Client) Artifacts(ctx context.Context, f ArtifactFilter) (types.ArtifactList, error) {
	var v types.ArtifactList
	return v, c.get(ctx, f.query(), &v)
}

// Artifact gives the artifact whose id begins with id.
func (c *Client) Artifact(ctx context.Context, id string) (types.Artifact, error) {
	var v types.Artifact
	return v, c.get(ctx, artifactPath(id)+"/info", &v)
}

// OpenArtifact gives an artifact's content from a byte on, which the caller closes. tag is the SHA-256 that it must
// still have; "" for any.
func (c *Client) OpenArtifact(ctx context.Context, id string, from int64, tag string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://handlerd"+artifactPath(id), nil)
	if err != nil {
		return nil, err
	}
	if tag != "" {
		req.Header.Set("If-Match", `"`+tag+`"`)
	}
	want := http.StatusOK
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		want = http.StatusPartialContent
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == want {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPreconditionFailed:
		return nil, fault.New(fault.Failed, "", "artifact %s has other content", id)
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, fault.New(fault.Failed, "", "artifact %s is shorter than %d bytes", id, from+1)
	}
	return nil, readError(resp)
}

// SaveArtifact copies an artifact into a scope and gives the path of the copy.
func (c *Client) SaveArtifact(ctx context.Context, id string, save types.ArtifactSave) (string, error) {
	var v types.ArtifactSaved
	err := c.post(ctx, artifactPath(id), save, &v)
	return v.Path, err
}

// RemoveArtifact removes the artifact whose id begins with id.
func (c *Client) RemoveArtifact(ctx context.Context, id string) error {
	_, err := c.remove(ctx, artifactPath(id))
	return err
}

// RemoveArtifacts removes those of a run, or of an agent's session, and says how many there were.
func (c *Client) RemoveArtifacts(ctx context.Context, f ArtifactFilter) (int, error) {
	return c.remove(ctx, f.query())
}

func (c *Client) remove(ctx context.Context, path string) (int, error) {
	resp, err := c.do(ctx, http.MethodDelete, path, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var v types.ArtifactsRemoved
	err = json.NewDecoder(resp.Body).Decode(&v)
	return v.Removed, err
}
