package plan

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestServers: no operation of a document can send requests to a server that the plan hides.
func TestServers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pack.yaml": "openapi: { x: { spec: docs/api.yaml } }\n",
		"api.yaml": `openapi: 3.0.0
info: { title: x, version: x }
servers: [{ url: "https://good.example" }, { url: "https://{h}.example/v1", variables: { h: { default: second } } }]
paths:
  /a: { Servers: [{ URL: "https://path.example", url: "https://good.example" }], get: { operationId: a } }
  /b: { get: { operationId: b, servers: [{ url: "https://operation.example" }] } }
  /c: { $ref: "other.yaml#/c" }
`,
		"other.yaml": "c: { get: { operationId: c, servers: [{ url: \"https://other.example\" }] } }\n",
	} {
		file := filepath.Join(dir, name)
		if name != "pack.yaml" {
			file = filepath.Join(dir, "docs", name)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"https://good.example", "https://operation.example", "https://other.example", "https://path.example",
		"https://second.example"}
	if !slices.Equal(p.URLs, want) {
		t.Errorf("the plan has the URLs %q, want %q", p.URLs, want)
	}
}
