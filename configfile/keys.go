package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// FromJSON writes a JSON object as TOML with the same keys and values; null says nothing. Whoever reads the result
// judges it: the text is in no order that a person would choose.
func FromJSON(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var keys map[string]any
	if err := dec.Decode(&keys); err != nil {
		return nil, fmt.Errorf("the settings are no JSON object: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("the settings have something behind their JSON object")
	}
	plain, err := tomlValue(keys)
	if err != nil {
		return nil, err
	}
	return toml.Marshal(plain)
}

// tomlValue gives a value of JSON as TOML has it.
func tomlValue(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if value == nil {
				continue
			}
			plain, err := tomlValue(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", Clip(key), err)
			}
			out[key] = plain
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			plain, err := tomlValue(value)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			out[i] = plain
		}
		return out, nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return v.Float64()
		}
		return v.Int64()
	case nil:
		return nil, errors.New("a list has no empty places")
	}
	return v, nil
}

// ToJSON gives the keys and values of a TOML file as a JSON object.
func ToJSON(file string, data []byte) ([]byte, error) {
	keys := map[string]any{}
	if err := Decode(file, data, &keys); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(keys); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
