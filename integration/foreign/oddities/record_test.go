package oddities

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

var (
	record = flag.Bool("record", false, "run the reference clients, and write what they do into the rows")
	rows   = flag.String("rows", "", "only the rows whose names match (default: all); -record also records those without a record")
)

// reference starts a reference client, which reads and writes lines.
func reference(t *testing.T, name string) *npm.Script {
	t.Helper()
	trusted := trust(t)
	return npm.MustTalk(t, name, func(ctx context.Context) *exec.Cmd {
		var cmd *exec.Cmd
		switch name {
		case "typescript-1":
			cmd = exec.CommandContext(ctx, "node", "oddities.mjs", "v1")
			cmd.Dir = npm.MustFolder(t)
		case "typescript-2":
			cmd = exec.CommandContext(ctx, "node", "oddities.mjs", "v2")
			cmd.Dir = npm.MustFolder(t)
		default:
			needs.UV.Require(t)
			cmd = exec.CommandContext(ctx, "uv", "run", "--quiet", "--no-project", "--with", "mcp==2.3.0", "python",
				"testdata/client.py")
		}
		cmd.Env = append(os.Environ(), trusted...)
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
		return cmd
	})
}

// target is a server as the reference clients read it.
type target struct {
	URL     string            `json:"url,omitempty"`
	Wire    string            `json:"wire"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Calls   int               `json:"calls"`
	Again   bool              `json:"again"`
	Call    string            `json:"call,omitempty"`
	Relist  bool              `json:"relist"`
	Asked   bool              `json:"asked"`
	Extends bool              `json:"extends"`
	SignIn  bool              `json:"signIn"`
	Client  map[string]string `json:"client,omitempty"`
}

// TestRecord runs the reference clients over all rows, and writes what they do into the rows. Without
// -record it does nothing.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("-record runs the reference clients")
	}
	harness.Alone(t, "it writes the table that the other test reads")
	table := mustTable(t)
	wanted := regexp.MustCompile(*rows)
	table = slices.DeleteFunc(table, func(r *row) bool {
		complete := !slices.ContainsFunc(references, func(name string) bool { return r.recorded(name) == "" })
		return complete && !wanted.MatchString(r.Name)
	})
	all := make([]map[*row]outcome, len(references))
	var running sync.WaitGroup
	for i, name := range references {
		all[i] = map[*row]outcome{}
		client := reference(t, name)
		running.Go(func() {
			for _, r := range table {
				all[i][r] = mustRecord(t, client, r)
			}
		})
	}
	running.Wait()
	lines := map[string]map[int]string{} // by file and line of the row
	for _, r := range table {
		text := ""
		for i, name := range references {
			if all[i][r] != "" { // the client came as far as this row
				text += fmt.Sprintf("  %s: %s\n", name, yamlText(string(all[i][r])))
			}
		}
		if lines[r.file] == nil {
			lines[r.file] = map[int]string{}
		}
		lines[r.file][r.line] = text
	}
	for file, of := range lines {
		mustWriteRecords(t, file, of)
	}
}

// changing is what an error has anew in each run: addresses, random texts.
var changing = regexp.MustCompile(`http://127\.0\.0\.1:\d+|\b[\w-]{32,}|\b[0-9A-F]{12,}\b`)

// mustRecord runs a reference client over the wires of a row. On all of them it must do the same.
func mustRecord(t *testing.T, client *npm.Script, r *row) (first outcome) {
	for _, o := range mustServeAll(t, r) {
		wire := o.wire
		a := target{Wire: wire, Args: []string{}, Calls: r.Calls, Again: r.Again, SignIn: r.SignIn != "", Client: r.Client,
			Call: r.Call, Relist: r.Relist > 0, Asked: r.Asked, Extends: r.Extends}
		if wire == wireStdio {
			binary, err := os.Executable()
			if err != nil {
				t.Error(err)
				return fails
			}
			a.Command, a.Args, a.Env = binary, []string{o.socket}, map[string]string{"JUNCTION_ROLE": relayRole}
		} else {
			a.URL = o.server.mcpURL()
		}
		line, err := json.Marshal(a)
		if err != nil {
			t.Error(err)
			return fails
		}
		var d done
		client.MustWrite(string(line))
		client.MustRead(&d)
		did := d.outcome()
		if !did.works() {
			did = outcome(abbreviated(changing.ReplaceAllString(string(o.failed(d.Error)), "…")))
		}
		if first == "" {
			first = did
		}
		if first.works() != did.works() || did.works() && first != did {
			t.Errorf("%s: %s does %q with the first server, and %q with %s; make two rows of it", r.Name, client.Name, first,
				did, o.title())
		}
	}
	return first
}

// yamlText is a value of a row.
func yamlText(text string) string {
	if text == works {
		return text
	}
	quoted, _ := json.Marshal(text) // a string
	return string(quoted)
}

// mustWriteRecords replaces the records of rows, which begin at these lines, and nothing else.
func mustWriteRecords(t *testing.T, file string, rows map[int]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	isRecord := func(line []byte) bool {
		return slices.ContainsFunc(references, func(name string) bool { return bytes.HasPrefix(line, []byte("  "+name+":")) })
	}
	var out, pending bytes.Buffer // pending comes before the line that says what Junction does
	number, within := 0, false
	for line := range bytes.Lines(text) {
		number++
		if bytes.HasPrefix(line, []byte("- row:")) {
			pending.Reset()
			pending.WriteString(rows[number])
			within = rows[number] != ""
		}
		if within && isRecord(line) {
			continue
		}
		if bytes.HasPrefix(line, []byte("  junction:")) || bytes.HasPrefix(line, []byte("  open:")) {
			out.Write(pending.Bytes())
			pending.Reset()
		}
		out.Write(line)
	}
	if err := os.WriteFile(filepath.Clean(file), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
