package streams

import (
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/view"
	"junction/upstream"
)

// Updated notifies the subscribers that a resource, or a resource that contains it, may have changed. If
// there are none, it notifies all subscribers to resources of the upstream, because only the
// upstream understands the relation. It does not block.
func (ls *Listeners) Updated(u upstream.Update) {
	name, uri := u.Upstream, u.URI
	ls.mu.Lock()
	defer ls.mu.Unlock()
	type found struct {
		h       *Subscriber
		known   bool // the client has subscribed to this very URI
		exposed string
		target  *view.Target
	}
	var certain, others []found
	for h := range ls.subscribers {
		if u.User != "" && u.User != h.Principal.ID {
			continue
		}
		sure, known, exposed := false, false, view.ExposeURI(name, uri)
		if h.Endpoint.View.Bare {
			exposed = uri
		}
		var b view.Backend
		for key, sub := range h.resources {
			if key.upstream != name || !u.Of(sub.from, key.uri) {
				continue
			}
			b = sub.backend
			if key.uri == uri {
				exposed, sure, known = sub.exposed, true, true
			} else if isPart(uri, key.uri) {
				sure = true
			}
		}
		if b == nil {
			continue
		}
		target := view.NewResource(b, uri, exposed, false)
		if !h.Subject.Ruling(target).Visible() {
			continue
		}
		if sure {
			certain = append(certain, found{h, known, exposed, target})
		} else {
			others = append(others, found{h, known, exposed, target})
		}
	}
	if len(certain) == 0 {
		certain = others
	}
	for _, f := range certain {
		if !f.known {
			f.exposed = f.h.Subject.Redact.URI(f.exposed)
		}
		ls.deliver(f.h, note{method: mcp.MethodNotificationResourceUpdated, uri: f.exposed}, f.target)
	}
}

// isPart reports whether a URI is below another URI.
func isPart(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, strings.TrimSuffix(whole, "/"))
	return ok && rest != "" && strings.ContainsRune("/?#", rune(rest[0]))
}
