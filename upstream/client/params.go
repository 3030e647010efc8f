package client

import (
	"bytes"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file makes the params of a call: what the client sent, with the members of _meta for this hop.

// reserved lists the _meta members that apply to one hop. They are never relayed.
var reserved = []string{"progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo,
	mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel,
	mcp.MetaKeySubscriptionID, mcp.MetaKeyServerInfo}

// reservedName returns the name of m if it is in reserved, otherwise "".
func reservedName(m raw.Member) string {
	for _, name := range reserved {
		if string(m.Key[1:len(m.Key)-1]) == name {
			return name
		}
	}
	if bytes.IndexByte(m.Key, '\\') >= 0 {
		if name, err := m.Name(); err == nil && slices.Contains(reserved, name) {
			return name
		}
	}
	return ""
}

// prepare builds the params of a call: the client's params with the upstream's own name of the
// tool, and with _meta for this hop. The flight is nil if the call has no peer.
func (b *base) prepare(id jsonrpc.ID, c *Call, clock *Clock, own []raw.Edit) ([]byte, *flight, error) {
	var edits [2]raw.Edit
	n := 0
	if c.Name != "" {
		var err error
		if edits[n], err = c.rename(); err != nil {
			return nil, nil, err
		}
		n++
	}
	var f *flight
	if c.Peer != nil {
		f = &flight{id: id, peer: c.Peer, window: c.window(), item: Item{c.Method, c.Name}, profile: c.Profile,
			clock: clock, trace: c.trace}
	}
	own = c.carried.edits(own)
	meta, err := c.Params.Object("_meta")
	if _, absent := meta.Get("progressToken"); absent == raw.ErrAbsent && f != nil && clock.onlyProgress() {
		f.counts = true
		own = append(own, raw.Edit{Name: "progressToken", Value: []byte(f.id)})
	}
	switch {
	case err == nil:
		if token, err := meta.Get("progressToken"); err == nil && f != nil {
			f.token = bytes.Clone(token) // a late notification may outlive the params
		}
		var few [512]byte
		value, err := rewriteMeta(few[:0], meta, f, own)
		if err != nil {
			return nil, nil, err
		}
		if value == nil || len(value) != len(meta.Text()) || &value[0] != &meta.Text()[0] {
			edits[n] = raw.Edit{Name: "_meta", Value: value}
			n++
		}
	case err != raw.ErrAbsent:
		return nil, nil, err
	case len(own) > 0:
		var few [512]byte
		edits[n] = raw.Edit{Name: "_meta", Value: appendMembers(few[:0], own)}
		n++
	}
	params := c.Params
	if !params.Present() {
		params = emptyMeta()
	}
	text, err := params.Splice(edits[:n]...)
	return text, f, err
}

// appendMembers appends an object with these members. Their names need no escapes.
func appendMembers(b []byte, own []raw.Edit) []byte {
	for i, m := range own {
		b = append(b, ",\""...)
		if i == 0 {
			b = append(b[:len(b)-2], "{\""...)
		}
		b = append(append(append(b, m.Name...), "\":"...), m.Value...)
	}
	return append(b, '}')
}

func emptyMeta() raw.Object {
	o, _ := raw.Parse([]byte("{}"))
	return o
}

// rewriteMeta removes the reserved members from meta and adds own and the progress token. It
// appends the result to b. It returns meta's own text if nothing changes, and nil if no member is
// left.
func rewriteMeta(b []byte, meta raw.Object, f *flight, own []raw.Edit) ([]byte, error) {
	var few [8]raw.Edit
	edits := few[:0]
	relayed := 0
	for m := range meta.All() {
		name := reservedName(m)
		if name == "" {
			relayed++
			continue
		}
		edits = append(edits, raw.Edit{Name: name})
	}
	if len(edits) == 0 && len(own) == 0 {
		return meta.Text(), nil
	}
	if f != nil && f.token != nil {
		own = append(own[:len(own):len(own)], raw.Edit{Name: "progressToken", Value: []byte(f.id)})
	}
	for _, o := range own {
		replaced := false
		for i := range edits {
			if edits[i].Name == o.Name {
				edits[i].Value, replaced = o.Value, true
			}
		}
		if !replaced {
			edits = append(edits, o)
		}
	}
	if relayed == 0 && len(own) == 0 {
		return nil, nil
	}
	return meta.AppendSplice(b, edits...)
}
