package folder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Bounds of the roots of a client.
const (
	maxSet      = 64       // folders
	maxSetBytes = 16 << 10 // of their paths
	maxNamed    = 256      // roots that are looked at
)

// A Set are the permitted folders of a client. The first one is its folder.
type Set []Place

// Key returns a text of letters and digits that is equal for Sets with the same first folder and the same
// others, in any order. It is "" for an empty Set.
func (s Set) Key() string {
	if len(s) == 0 {
		return ""
	}
	h := sha256.New()
	h.Write([]byte(s[0].Key()))
	var others []string
	for _, place := range s[1:] {
		others = append(others, place.Key())
	}
	slices.Sort(others)
	for _, key := range others {
		h.Write([]byte(key))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// AdmitRoots returns the permitted ones of the roots of a client, which are URIs. The first root that names a
// folder of this machine must be permitted, because it is the folder of the client; others are left out. With
// no such root, the error has the reasons. The Set has at most 64 folders, whose paths have 16 KiB.
func (g *Guard) AdmitRoots(ctx context.Context, principal string, uris []string) (Set, error) {
	var set Set
	var left []error
	bytes := 0
	for i, uri := range uris {
		if i == maxNamed || len(set) == maxSet {
			break
		}
		path, err := URI(uri)
		if err == nil {
			var place Place
			if place, err = g.Admit(ctx, principal, path); err == nil {
				if bytes += len(place.path); bytes > maxSetBytes {
					break
				}
				if !slices.Contains(set, place) {
					set = append(set, place)
				}
				continue
			}
			if len(set) == 0 || ctx.Err() != nil {
				return nil, err
			}
		}
		if len(left) < 3 { // enough for an error
			left = append(left, fmt.Errorf("the root %q: %w", short(uri), err))
		}
	}
	switch {
	case len(set) > 0:
		return set, nil
	case len(uris) == 0:
		return nil, errors.New("the client has no root; open a folder in it")
	}
	none := errors.New("no root of the client names a folder of this machine")
	return nil, errors.Join(append([]error{none}, left...)...)
}
