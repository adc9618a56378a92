package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
)

// CheckSecrets asks whether an agent's secrets can be read, and how long that took.
func (c *Client) CheckSecrets(ctx context.Context, agent string) ([]types.SecretCheck, error) {
	resp, err := c.do(ctx, http.MethodPost, types.PathSecrets, types.SecretsRequest{Agent: agent})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var v []types.SecretCheck
	return v, json.NewDecoder(resp.Body).Decode(&v)
}
