package transport

import (
	"fmt"

	"junction/upstream/jsonrpc"
)

// This file decides which message of a server is the response to a request.

// answers reports whether m is the response to the request with this id. An error without id
// counts: the server could not read our id. If the id has the same value, but another text, m gets that
// of the request.
func answers(m *jsonrpc.Message, id jsonrpc.ID) bool {
	if !m.IsResponse() {
		return false
	}
	if m.ID != id && m.ID != "" && m.ID.Value() == id {
		m.ID = id
	}
	return m.ID == id || m.ID == "" && m.Error != nil
}

// isOther reports whether m is the response to another request than that with this id, which is "" for
// none. Some servers answer what they cannot read with an id of their own, which is no number, 0 or -1.
func isOther(m *jsonrpc.Message, id jsonrpc.ID) bool {
	value := m.ID.Value()
	return m.IsResponse() && value != "" && value != "0" && value[0] != '-' && value != id
}

// maxBatch is the most messages of a document.
const maxBatch = 64

// batch reads a document with several messages for the request called id: its response, and messages
// that go to on before it. Versions before 2025-06-18 allow such documents, and the TypeScript SDK reads
// them in all.
func (o *origin) batch(
	t *trip, text []byte, id jsonrpc.ID, on func(*jsonrpc.Message),
) (*jsonrpc.Message, error) {
	items, err := jsonrpc.Batch(text, maxBatch)
	if err != nil {
		return nil, fmt.Errorf("%w: a batch that is no array of at most %d messages: %w", ErrInvalid, maxBatch, err)
	}
	var found *jsonrpc.Message
	var others []*jsonrpc.Message
	for _, item := range items {
		m, err := jsonrpc.Parse(item, o.depth)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: in a batch: %w", ErrInvalid, err)
		case !m.IsResponse():
			others = append(others, &m)
		case !answers(&m, id):
			o.distrust(t)
			return nil, fmt.Errorf("%w: a batch with %s to the request %s", ErrInvalid,
				o.what(&m, t.forwarded), id)
		case found != nil:
			return nil, fmt.Errorf("%w: a batch with two responses to the request %s", ErrInvalid, id)
		default:
			found = &m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: a batch without the response to the request %s", ErrInvalid, id)
	}
	for _, m := range others {
		if on != nil {
			on(keep(m))
		}
	}
	return found, nil
}
