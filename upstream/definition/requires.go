package definition

import (
	"encoding/json"
	"errors"

	"junction/upstream/raw"
)

// Capabilities is the member of the _meta of a tool with the capabilities that Junction requires of
// the callers of the tool, in addition to those of its own configuration.
const Capabilities = "junction/capabilities"

// NoCapability is a capability that no policy can give.
const NoCapability = "(unreadable)"

// The limits of the capabilities of a definition.
const (
	maxCapabilities = 32
	maxCapability   = 64
)

// Requires returns the capabilities that the definition of a tool names. What cannot be read is a
// capability that no caller has.
func Requires(o raw.Object) []string {
	var text []byte
	meta, err := o.Object("_meta")
	if err == nil {
		text, err = meta.Get(Capabilities)
	}
	switch {
	case errors.Is(err, raw.ErrAmbiguous):
		return []string{NoCapability}
	case err != nil:
		return nil
	}
	var list []string
	if json.Unmarshal(text, &list) != nil || list == nil || len(list) > maxCapabilities {
		return []string{NoCapability}
	}
	for _, s := range list {
		if s == "" || len(s) > maxCapability {
			return []string{NoCapability}
		}
	}
	return list
}
