package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// This file carries policies to another process, which judges by them, too (package members).

// Carried has what a Policy is compiled from.
type Carried struct {
	Policies Config              // nil: see Open
	Scopes   map[string][]string // see Policy.WithScopes
}

// Carry returns the text of policies, for FromText in another process. Equal policies have equal texts.
func Carry(all []Carried) ([]byte, error) { return json.Marshal(all) }

// FromText compiles the policies of another process: a call passes if each of them lets it pass. A key that
// this version does not know is an error, because it may be one that denies.
func FromText(text []byte) (*Policy, error) {
	var all []Carried
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("read the policies of another process: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read the policies of another process: there are none")
	}
	var whole *Policy
	for i, c := range all {
		p := Open()
		if c.Policies != nil {
			var err error
			if p, err = Compile(c.Policies); err != nil {
				return nil, err
			}
		}
		if p = p.WithScopes(c.Scopes); i == 0 {
			whole = p
		} else {
			whole = Both(whole, p)
		}
	}
	return whole, nil
}

// The types below are written by Carry as what they are, and not in the notation of the file.

// UnmarshalJSON reads calls per second.
func (r *Rate) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*float64)(r)) }

// UnmarshalJSON reads the kind, which may be CatalogFull.
func (c *Catalog) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*string)(c)) }

// UnmarshalJSON reads the word, which may be absent.
func (r *Remember) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*string)(r)) }
