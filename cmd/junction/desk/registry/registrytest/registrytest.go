// Package registrytest has a stand-in of an MCP registry, for tests.
package registrytest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Registry is a stand-in of the API of an MCP registry, v0.1. Like the official one, it searches in
// names only, and returns the status of a server outside its server.json.
type Registry struct {
	Servers  []json.RawMessage // server.json of each server, by their names
	Status   map[string]string // by the name of a server; by default active
	PageSize int               // at most so many servers in one answer; 0 means the limit of the request
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name, isOne := strings.CutPrefix(q.URL.EscapedPath(), "/v0.1/servers/")
	switch {
	case q.Method != http.MethodGet:
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
	case q.URL.Path == "/v0.1/servers":
		r.list(w, q)
	case isOne && strings.HasSuffix(name, "/versions/latest"):
		name = strings.ReplaceAll(strings.TrimSuffix(name, "/versions/latest"), "%2F", "/")
		for _, s := range r.Servers {
			if nameOf(s) == name {
				write(w, r.entry(s))
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		write(w, map[string]any{"title": "Not Found", "status": 404, "detail": "Server not found"})
	default:
		http.NotFound(w, q)
	}
}

func (r *Registry) list(w http.ResponseWriter, q *http.Request) {
	var found []json.RawMessage
	for _, s := range r.Servers {
		if strings.Contains(strings.ToLower(nameOf(s)), strings.ToLower(q.FormValue("search"))) {
			found = append(found, s)
		}
	}
	begin := slices.IndexFunc(found, func(s json.RawMessage) bool { return nameOf(s) == q.FormValue("cursor") }) + 1
	limit, err := strconv.Atoi(q.FormValue("limit"))
	if err != nil || limit < 1 || limit > 100 || q.FormValue("version") != "latest" {
		http.Error(w, "bad limit or version", http.StatusUnprocessableEntity)
		return
	}
	if r.PageSize > 0 {
		limit = min(limit, r.PageSize)
	}
	end := min(begin+limit, len(found))
	list, metadata := []any{}, map[string]any{"count": end - begin}
	for _, s := range found[begin:end] {
		list = append(list, r.entry(s))
	}
	if end < len(found) {
		metadata["nextCursor"] = nameOf(found[end-1])
	}
	write(w, map[string]any{"servers": list, "metadata": metadata})
}

func (r *Registry) entry(server json.RawMessage) any {
	status := r.Status[nameOf(server)]
	if status == "" {
		status = "active"
	}
	official := map[string]any{"status": status, "isLatest": true, "publishedAt": "2026-01-02T03:04:05Z"}
	return map[string]any{"server": server,
		"_meta": map[string]any{"io.modelcontextprotocol.registry/official": official}}
}

func nameOf(server json.RawMessage) string {
	var s struct{ Name string }
	_ = json.Unmarshal(server, &s) // "" then
	return s.Name
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
