package diagnose

import (
	"encoding/json"
	"net/http"
)

// Pins is the answer of /pins: the current definitions of the upstreams' tools, verbatim.
type Pins struct {
	Tools []Pin `json:"tools"`
}

// Pin is the current definition of one tool.
type Pin struct {
	Upstream   string          `json:"upstream"`
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"`
}

// servePins answers /pins.
func (p *Proxy) servePins(w http.ResponseWriter, _ *http.Request) {
	p.Server.Settle()
	r := Pins{Tools: []Pin{}}
	for _, d := range p.Server.Snapshot().Definitions() {
		r.Tools = append(r.Tools, Pin{d.Upstream, d.Name, d.Definition})
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(r)
}
