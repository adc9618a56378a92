package types

// PathSecrets is POST: SecretsRequest; answers []SecretCheck.
const PathSecrets = "/v1/secrets/check"

// A SecretsRequest asks whether an agent's secrets can be read.
type SecretsRequest struct {
	Agent string `json:"agent"`
}

// A SecretCheck says how reading one secret went, never what it is.
type SecretCheck struct {
	Name    string `json:"name"`
	Use     string `json:"use"`    // what it is for: "key of the upstream anthropic", "file of the addon playwright"
	Kind    string `json:"kind"`   // "file", "pass", "secret-service", "credential" or "command"
	Source  string `json:"source"` // as the command line takes it
	OK      bool   `json:"ok"`
	TookMS  int64  `json:"tookMs"`
	Problem string `json:"problem,omitempty"` // why it cannot be read, and what to do
}
