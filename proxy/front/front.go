package front

import (
	"net/http"
	"strings"

	"junction/upstream/raw"
)

// eraFront handles messages of one era: legacyFront or modernFront.
type eraFront interface {
	// post validates a message by the rules of the era and serves it.
	post(x *request)
}

// maxClient bounds the client's name in session IDs and in the log, in bytes.
const maxClient = 64

// clientName returns the client's name for itself, which is in a member of o; "" if there is none.
func clientName(o raw.Object, member string) string {
	info, _ := o.Object(member)
	name, _ := info.String("name")
	return name[:min(len(name), maxClient)]
}

// header returns the first value of a header without surrounding white space; "" if there is none.
func header(h http.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}
