package raw_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// messages are the benchmarks' inputs: what a tool returned, which is a few long strings (base64
// has no escapes, text has one per line), and lists of tools, which are many short ones. Each is
// about as long as its name says.
func messages() map[string][]byte {
	m := make(map[string][]byte)
	for name, size := range map[string]int{"100B": 100, "10KB": 10 << 10, "1MB": 1 << 20} {
		m["base64/"+name] = callResult("image", "data", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("pixel", size)))[:max(size-90, 20)])
		lines := strings.Repeat("\tif err != nil { return fmt.Errorf(\"read %s: %w\", name, err) }\n", size/68+1)
		m["text/"+name] = callResult("text", "text", lines[:max(size*9/10-80, 30)])
		m["tools/"+name] = toolList(max(size/330, 1))
	}
	m["tools/100B"] = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"n":12,"s":"hi"}}}`)
	return m
}

func callResult(kind, member, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":%q,%q:%s}],"isError":false}}`, kind, member, raw.Quote(text))
}

func toolList(n int) []byte {
	b := []byte(`{"jsonrpc":"2.0","id":17,"result":{"tools":[`)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"name":"tool_%d","description":"Reads one file, as it is.","inputSchema":{"type":"object","properties":{"path":{"type":"string",`+
			`"description":"where it is"},"head":{"type":"integer","minimum":0,"maximum":10000},"tags":{"type":"array","items":{"type":"string"}}},`+
			`"required":["path"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}`, i)
	}
	return append(b, "]}}"...)
}

func benchMessages(b *testing.B, f func(b *testing.B, text []byte)) {
	all := messages()
	for _, kind := range []string{"base64", "text", "tools"} {
		for _, size := range []string{"100B", "10KB", "1MB"} {
			text := all[kind+"/"+size]
			b.Run(kind+"/"+size, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				f(b, text)
			})
		}
	}
}

func BenchmarkScan(b *testing.B) {
	benchMessages(b, func(b *testing.B, text []byte) {
		for b.Loop() {
			if _, err := raw.Scan(text, 100); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSet is the one change that a call's params need: the name of the tool.
func BenchmarkSet(b *testing.B) {
	benchMessages(b, func(b *testing.B, text []byte) {
		params := fmt.Appendf(nil, `{"name":"files__read","arguments":%s}`, text)
		name := []byte(`"read"`)
		for b.Loop() {
			if _, err := raw.Set(params, name, "name"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
