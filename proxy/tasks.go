package proxy

import (
	"junction/upstream/raw"
)

// wrapTask makes the result that begins a task one whose id leads back to its upstream, and is its user's only.
func (s *Server) wrapTask(x *exchange, o raw.Object) (result, error) {
	return result{}, x.invalid("a result of type task")
}
