package client

import "testing"

// TestNotificationsOfExtensions: a notification belongs to an extension by its identifier, or by the name in
// it. Those of MCP, and those of an extension that Junction changes, belong to no other one.
func TestNotificationsOfExtensions(t *testing.T) {
	for _, row := range []struct {
		method, extension string
		want              bool
	}{
		{"notifications/com.example/weather", "com.example/weather", true},
		{"notifications/weather/storm", "com.example/weather", true},
		{"notifications/com.example/weather/storm", "com.example/weather", true},
		{"notifications/weatherman", "com.example/weather", false},
		{"notifications/other", "com.example/weather", false},
		{"weather/storm", "com.example/weather", false},
		{"notifications/cancelled", "com.example/cancelled", false},
		{"notifications/tasks/status", "com.example/tasks", false},
		{"notifications/tasks", "x/tasks", false},
		{"notifications/io.modelcontextprotocol/tasks/status", "io.modelcontextprotocol/tasks", false},
		{"notifications/skills", "x/skills", false},
		{"notifications/x", "x/", false},
		{"notifications/", "x", false},
	} {
		if got := IsOfExtension(row.method, row.extension); got != row.want {
			t.Errorf("%s is of %s: %t, want %t", row.method, row.extension, got, row.want)
		}
	}
}
