package clients

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestValuesAreRendered writes values as Junction's file has them, with secrets in files of their own.
func TestValuesAreRendered(t *testing.T) {
	kept := map[string]string{}
	keep := func(label, secret string) (string, error) {
		kept[label] = secret
		return "/secrets/" + label, nil
	}
	for want, v := range map[string]Value{
		"text":                   Literal("text"),
		"$${NAME}":               Literal("${NAME}"), // a text that looks like a reference
		"${NAME}":                Variable("NAME"),
		"${NAME:-x}":             {{kind: variable, text: "NAME", fallback: "x"}},
		"Bearer ${file:/f}":      {{text: "Bearer "}, {kind: fileRef, text: "/f"}},
		"${file:/secrets/key}":   Secret("key", "canary-1"),
		"${file:/secrets/value}": Literal("env:HOME"), // which is a reference of Junction's
		"env:not a name":         Literal("env:not a name"),
	} {
		if got, err := v.Render(keep); err != nil || got != want {
			t.Errorf("%+v is written as %q, %v; want %q", v, got, err, want)
		}
	}
	if fmt.Sprint(kept) != "map[key:canary-1 value:env:HOME]" {
		t.Errorf("kept are %q", kept)
	}
	if got, err := (Value{{text: "a$"}, {kind: variable, text: "B"}}).Render(keep); err == nil {
		t.Errorf("a $ before a reference is written as %q", got)
	}
	full := errors.New("the disk is full")
	if _, err := Secret("key", "canary-1").Render(func(string, string) (string, error) { return "", full }); !errors.Is(err, full) {
		t.Errorf("a secret that cannot be kept: %v", err)
	}
}

// TestValuesAreExpanded reads variables and files.
func TestValuesAreExpanded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("of the file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) (string, bool) { return map[string]string{"A": "a"}[name], name == "A" }
	for want, v := range map[string]Value{
		"-a-":         {{text: "-"}, {kind: variable, text: "A"}, {text: "-"}},
		"a":           {{kind: variable, text: "A", fallback: "other"}},
		"other":       {{kind: variable, text: "B", fallback: "other"}},
		"":            Variable("B"),
		"of the file": {{kind: fileRef, text: file}},
		"canary-1":    Secret("key", "canary-1"),
	} {
		if got := v.Expand(getenv); got != want {
			t.Errorf("%+v stands for %q, want %q", v, got, want)
		}
	}
}

// TestNamesOfUpstreams: names of servers as those of upstreams, and the first that is free.
func TestNamesOfUpstreams(t *testing.T) {
	long := strings.Repeat("x", 40)
	for name, want := range map[string]string{"git hub": "git-hub", "--a--": "a", "日本": "server", "": "server",
		long: long[:32], strings.Repeat("x", 31) + "/y": strings.Repeat("x", 31)} {
		if got := NameOf(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
	taken := map[string]bool{"a": true, "a-2": true, long[:32]: true}
	for name, want := range map[string]string{"A": "A-3", "b": "b", long[:32]: long[:30] + "-2"} {
		if got := free(name, taken); got != want {
			t.Errorf("beside %v, %q becomes %q, want %q", taken, name, got, want)
		}
	}
}

// TestOwnAddresses: an import leaves out the entry of Junction itself, however its address is written.
func TestOwnAddresses(t *testing.T) {
	own := []string{"http://127.0.0.1:8420/mcp", "https://mcp.x.org/mcp"}
	for address, want := range map[string]bool{
		"http://localhost:8420/mcp": true, "http://[::1]:8420/web/mcp": true, "http://0.0.0.0:8420": true,
		"http://[::ffff:127.0.0.1]:8420/": true, "https://MCP.x.org:443/": true,
		"http://localhost:8421/mcp": false, "https://x.org/mcp": false, "http://mcp.x.org/mcp": false, "stdio": false, "": false,
	} {
		if got := isOwnAddress(address, own); got != want {
			t.Errorf("%s is Junction's: %v, want %v", address, got, want)
		}
	}
}
