package sealed

import (
	"crypto/sha256"
	"strings"

	"junction/proxy/canon"
	"junction/upstream/raw"
)

// Request is what a State is about: a client may repeat only this request with the State.
type Request struct {
	Endpoint, Method string
	Upstream, Target string     // the current target, by the upstream's own name
	Params           raw.Object // absent if there are none
	Meta             raw.Object // params._meta; absent if it is no object
	Folder           string     // of the client, upstream.Folders.Key; "" for none
	Forwarded        string     // headers of the client, upstream.Forwarded.Key; "" for none
}

// Digest identifies a request by its endpoint, its method, its current target and the values of its
// params. Two spellings of the same params have the same digest. Members that change when a client
// repeats a request do not count, unless one of their names is ambiguous. Params without a
// canonical form count as bytes.
func (r Request) Digest() []byte {
	text, err := r.Params.Splice(raw.Edit{Name: "_meta"}, raw.Edit{Name: "inputResponses"},
		raw.Edit{Name: "requestState"})
	if err != nil {
		text = r.Params.Text()
	}
	kind, form := canonical(text)
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Endpoint), {0}, []byte(r.Method), {0},
		[]byte(r.Upstream), {0}, []byte(r.Target), {0, kind}, form} {
		h.Write(part)
	}
	digest := h.Sum(nil)
	if r.Folder != "" {
		in := sha256.Sum256(append(digest, r.Folder...))
		digest = in[:]
	}
	if r.Forwarded != "" {
		in := sha256.Sum256(append(append(digest, "headers\x00"...), r.Forwarded...))
		digest = in[:]
	}
	return digest[:16]
}

// canonical returns the canonical form of JSON, or its bytes if it has none. kind tells the two apart.
func canonical(text []byte) (kind byte, form []byte) {
	if form, ok := canon.Value(text); ok {
		return 'v', form
	}
	return 'b', text
}

// ApprovalDigest is the digest of what an approval covers: the request with its _meta, except the
// members that the protocol puts there for each request.
func (r Request) ApprovalDigest() []byte {
	meta, ok := r.ApprovedMeta()
	if !ok {
		meta = r.Meta.Text()
	}
	kind, form := canonical(meta)
	h := sha256.New()
	h.Write(append(r.Digest(), kind))
	h.Write(form)
	return h.Sum(nil)[:16]
}

// ApprovedMeta returns the members of _meta that an approval covers; nil for none. It returns false if
// _meta is ambiguous.
func (r Request) ApprovedMeta() (text []byte, ok bool) {
	if !r.Meta.Present() {
		text, err := r.Params.Get("_meta") // not an object
		return text, err == nil || err == raw.ErrAbsent
	}
	return canon.Without(r.Meta, func(name string) bool {
		switch name {
		case "progressToken", "traceparent", "tracestate", "baggage":
			return true
		}
		return strings.HasPrefix(name, "io.modelcontextprotocol/")
	})
}
