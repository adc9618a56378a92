package types

import "time"

// PathArtifacts is the person's artifacts (I):
//
//	GET    /v1/artifacts?run=&session=&agent=  ArtifactList; a run by the beginning of its id
//	DELETE /v1/artifacts?run=                  ArtifactsRemoved; or ?agent=&session=
//	GET    /v1/artifacts/{id}                  the content, with ranges (RFC 9110); HEAD too
//	GET    /v1/artifacts/{id}/info             Artifact
//	POST   /v1/artifacts/{id}                  ArtifactSave; answers ArtifactSaved
//	DELETE /v1/artifacts/{id}                  ArtifactsRemoved
//
// An id may be the beginning of one, of at least four characters.
const PathArtifacts = "/v1/artifacts"

// An Artifact is a file that an agent made for its person.
type Artifact struct {
	ID      string    `json:"id"`
	Run     string    `json:"run"`
	Session string    `json:"session,omitempty"` // the ACP session in it
	Agent   string    `json:"agent"`
	Name    string    `json:"name"`
	Source  string    `json:"source,omitempty"` // the tool that made it
	Type    string    `json:"type"`             // media type, by its content
	Bytes   int64     `json:"bytes"`
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
	Path    string    `json:"path"` // a file on this machine that holds it; not to be written to
}

// An ArtifactList is some artifacts, oldest first, and what all of them take.
type ArtifactList struct {
	Artifacts []Artifact    `json:"artifacts"`
	Usage     ArtifactUsage `json:"usage"`
}

// ArtifactUsage is how full the store is.
type ArtifactUsage struct {
	Count    int             `json:"count"`
	MaxCount int             `json:"maxCount"`
	Bytes    int64           `json:"bytes"`
	MaxBytes int64           `json:"maxBytes"`
	PerRun   int             `json:"perRun"`  // the most of one run
	Largest  []ArtifactShare `json:"largest"` // the runs that fill it, the largest first, at most ten
}

// An ArtifactShare is what one run has of it.
type ArtifactShare struct {
	Run   string `json:"run"`
	Agent string `json:"agent"`
	Count int    `json:"count"`
	Bytes int64  `json:"bytes"`
}

// What an ArtifactSave does where the name is taken.
const (
	ConflictError   = "error"
	ConflictRename  = "rename"
	ConflictReplace = "replace"
)

// An ArtifactSave copies an artifact into a scope. There is no other source than the artifact.
type ArtifactSave struct {
	Destination Destination `json:"destination"`
	Name        string      `json:"name,omitempty"`     // a plain file name; "" for the artifact's own
	Conflict    string      `json:"conflict,omitempty"` // "" for ConflictError
}

// A Destination is a folder in a scope that is rw: of a live run, or of an agent as a run started in Cwd would have it.
type Destination struct {
	Run   string `json:"run,omitempty"` // by the beginning of its id
	Agent string `json:"agent,omitempty"`
	Cwd   string `json:"cwd,omitempty"` // absolute; with Agent: the scope of one that names none
	// Folder is absolute, or below the only scope that is rw; "" is that scope itself. It exists, and no part of it
	// below the scope is a symlink.
	Folder string `json:"folder,omitempty"`
}

// An ArtifactSaved says where the copy is.
type ArtifactSaved struct {
	Path string `json:"path"`
}

// ArtifactsRemoved says how many were.
type ArtifactsRemoved struct {
	Removed int `json:"removed"`
}

// FromArtifact marks a line of a run's log that tells of an artifact; LogLine.Artifact is set.
const FromArtifact = "artifact"
