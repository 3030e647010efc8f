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
		{"a variable in the command", Config{Command: []string{"env", "NOTES_FILE=/srv/notes", "x"}, Separate: true}, "NOTES_FILE", false},
		{"a variable of a container", Config{Command: []string{"docker", "run", "-e", "NOTES_FILE=/data/notes", "x"}, Separate: true}, "NOTES_FILE", false},
		{"a variable in the text for a shell", Config{Command: []string{"sh", "-c", "NOTES_FILE=/srv/notes exec x"}, Separate: true}, "NOTES_FILE", false},
		{"a known server in the text for a shell", Config{Command: []string{"sh", "-c", "exec npx -y '" + memory[2] + "'"}, Separate: true}, "MEMORY_FILE_PATH", true},
		{"a known image with a volume", Config{Command: []string{"docker", "run", "-i", "--rm", "-v", "mem:/app/dist", "mcp/memory:1"}, Separate: true}, "MEMORY_FILE_PATH", true},
		{"a known image alone", Config{Command: []string{"docker", "run", "-i", "--rm", "mcp/memory"}, Separate: true}, "", false},
		{"another image", Config{Command: []string{"docker", "run", "-v", "a:/b", "mcp/memory-other"}, Separate: true}, "", false},
		{"a certificate in the command", Config{Command: []string{"env", "SSL_CERT_FILE=/a", "x"}, Separate: true}, "", false},
		{"a parameter that is no variable", Config{Command: []string{"x", "out_file=/a", "--log_file=/b"}, Separate: true}, "", false},
		{"a flag", Config{Command: []string{"x", "--db-path", "/a.db", "--spec-file=/b.json"}, Separate: true}, "", false},
		{"the operator has decided about the command", Config{Command: []string{"env", "NOTES_FILE=/srv/notes", "x"}, Separate: true,
			Isolation: IsolationPrincipal}, "", false},
		{"a url", Config{URL: "https://a.example.com", Separate: true, Env: env("NOTES_FILE")}, "", false},
	} {
		if variable, known := tt.config.OneFile(); variable != tt.variable || known != tt.known {
			t.Errorf("%s: OneFile is %q, %t; want %q, %t", tt.name, variable, known, tt.variable, tt.known)
		}
	}
}
