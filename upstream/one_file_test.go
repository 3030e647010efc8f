package upstream

import "testing"

// TestSeveralProcessesOfOneFile: OneFile finds a file of data that several processes of a command use at once. It
// finds none if one process has it, if a file is only read, and if the operator has decided.
func TestSeveralProcessesOfOneFile(t *testing.T) {
	memory := []string{"npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"}
	env := func(name string) map[string]string { return map[string]string{name: "/srv/data"} }
	for _, tt := range []struct {
		name     string
		config   Config
		variable string
		known    bool
	}{
		{"a known server", Config{Command: memory, Separate: true}, "MEMORY_FILE_PATH", true},
		{"without a version", Config{Command: []string{"npx", "@modelcontextprotocol/server-memory"}, Separate: true},
			"MEMORY_FILE_PATH", true},
		{"the operator wants one for each user", Config{Command: memory, Separate: true,
			Isolation: IsolationPrincipal}, "MEMORY_FILE_PATH", true},
		{"each session", Config{Command: memory, Isolation: IsolationSession}, "MEMORY_FILE_PATH", true},
		{"shared", Config{Command: memory, Separate: true, Isolation: IsolationShared}, "", false},
		{"one user", Config{Command: memory}, "", false},
		{"one user, by name", Config{Command: memory, Isolation: IsolationPrincipal}, "", false},
		{"a file for each folder", Config{Command: memory, Separate: true, Isolation: IsolationFolder,
			Env: map[string]string{"MEMORY_FILE_PATH": "${folder}/memory.jsonl"}}, "", false},
		{"_FILE", Config{Command: []string{"x"}, Separate: true, Env: env("NOTES_FILE")}, "NOTES_FILE", false},
		{"_DB", Config{Command: []string{"x"}, Separate: true, Env: env("app_db")}, "app_db", false},
		{"the operator has decided", Config{Command: []string{"x"}, Separate: true, Isolation: IsolationPrincipal,
			Env: env("NOTES_FILE")}, "", false},
		{"a certificate", Config{Command: []string{"x"}, Separate: true, Env: env("SSL_CERT_FILE")}, "", false},
		{"a password", Config{Command: []string{"x"}, Separate: true, Env: env("PGPASS_FILE")}, "", false},
		{"a url", Config{URL: "https://a.example.com", Separate: true, Env: env("NOTES_FILE")}, "", false},
	} {
		if variable, known := tt.config.OneFile(); variable != tt.variable || known != tt.known {
			t.Errorf("%s: OneFile is %q, %t; want %q, %t", tt.name, variable, known, tt.variable, tt.known)
		}
	}
}
