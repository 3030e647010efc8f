//go:build linux

package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file has the agents: how each is configured and started without a person.

// agent is a command line that others wrote.
type agent struct {
	name string
	wire wire
	// prepare writes the configuration into the home folder, and returns the command and its
	// further environment.
	prepare func(m machine) (command, env []string)
	// ignoresChanges says that the agent reads the list of tools once.
	ignoresChanges bool
	// keepsRemoved says that removed tools stay in the model requests until the next prompt.
	keepsRemoved bool
	// refusal is what its model reads of a call that a person must approve: Codex and Copilot
	// decline without a terminal, others cannot ask. It is empty for agents that have a way to
	// accept.
	refusal string
	// questions are texts on the screen of a terminal to which a person presses Enter, in order to
	// approve a call. Without them, unasked is the reason.
	questions []string
	unasked   string
	// client is its word for junction connect; "" for a variant of another agent.
	client string
	// roots says that it declares the folder in which it was started.
	roots bool
}

// machine is what an agent needs to know.
type machine struct {
	t        *testing.T
	packages string // node_modules
	home     string
	model    string // URL of the stand-in
	junction string // URL of the endpoint
	person   bool   // a person is at a terminal; startTerminal sets it
	folder   string // in which the agent is started; "" is a folder in home
	// connected says that junction connect writes the entry of Junction, so that prepare leaves it out.
	connected bool
	keyFile   string // of the entry that junction connect writes; "" for none
}

// agents returns all agents.
func agents() []agent {
	const (
		declined  = "did not approve this call"
		cannotAsk = "needs the approval of a person"
		ours      = "This call needs your approval." // Junction's question
		own       = "Allow the junction MCP server"  // Codex has its own question first
		mute      = "the agent does not declare elicitation"
		hook      = "TestForeignAgentsApproval has the hook of Claude Code answer"
	)
	return []agent{
		{name: "claude-code", wire: anthropic(), prepare: claudeCode, keepsRemoved: true, unasked: hook,
			client: "claude-code", roots: true},
		{name: "claude-code over mcp-remote", wire: anthropic(), prepare: claudeCodeOverMCPRemote,
			keepsRemoved: true, unasked: hook},
		{name: "codex", wire: responses(), prepare: codex, client: "codex",
			ignoresChanges: true, refusal: declined, questions: []string{own, ours}},
		{name: "codex tool_list_changed", wire: responses(), prepare: codexListChanged,
			refusal: declined, unasked: "the flag changes nothing about questions"},
		{name: "codex 2026-07-28", wire: responses(), prepare: codexModern,
			ignoresChanges: true, refusal: declined, questions: []string{own, ours}},
		{name: "gemini-cli", wire: gemini(), prepare: geminiCLI, refusal: cannotAsk, unasked: mute,
			client: "gemini", roots: true},
		{name: "copilot", wire: completions(), prepare: copilot, refusal: declined, questions: []string{ours},
			client: "copilot"},
		{name: "opencode", wire: completions(), prepare: opencode, refusal: cannotAsk, unasked: mute,
			client: "opencode", roots: true},
	}
}

// write creates a file below the home folder.
func (m machine) write(name, text string) (path string) {
	m.t.Helper()
	path = filepath.Join(m.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// newMachine returns what an agent needs to know in a home folder.
func newMachine(t *testing.T, home string, m *model, p *program) machine {
	t.Helper()
	junction := "http://" + traced(t, p.address) + "/mcp"
	where := machine{t: t, packages: mustOptIn(t), home: home, model: m.url, junction: junction}
	if err := os.MkdirAll(where.work(), 0o700); err != nil {
		t.Fatal(err)
	}
	return where
}

// environment is the environment of every agent.
func (m machine) environment() []string {
	return []string{"HOME=" + m.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "DO_NOT_TRACK=1"}
}

// work is the working directory of an agent.
func (m machine) work() string { return cmp.Or(m.folder, filepath.Join(m.home, "work")) }

// entry returns the servers of a configuration: Junction, unless junction connect adds it.
func (m machine) entry(server object) object {
	if m.connected {
		return object{}
	}
	return object{"junction": server}
}

// mustJSON returns a value as JSON.
func (m machine) mustJSON(value any) string {
	m.t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// binary returns the one program that matches below node_modules. It skips the test where npm has
// none for this system.
func (m machine) binary(pattern string) string {
	m.t.Helper()
	found, err := filepath.Glob(filepath.Join(m.packages, pattern))
	if err != nil {
		m.t.Fatal(err)
	}
	if len(found) == 0 && runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		m.t.Fatalf("npm ci did not install %s", pattern)
	}
	if len(found) == 0 {
		m.t.Skipf("package-lock.json has no %s for this system", pattern)
	}
	return found[0]
}

// mustConnect has junction connect write the entry of Junction into the configuration of the agent.
func (m machine) mustConnect(a agent) {
	m.t.Helper()
	words := []string{"connect", a.client, "--url", m.junction}
	if m.keyFile != "" {
		words = append(words, "--key-file", m.keyFile)
	}
	cmd := exec.Command(harness.JunctionBinary(m.t), words...)
	cmd.Env = append(m.environment(), "XDG_STATE_HOME="+filepath.Join(m.home, ".state"))
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

func claudeCode(m machine) (command, env []string) {
	return claude(m, object{"type": "http", "url": m.junction})
}

func claudeCodeOverMCPRemote(m machine) (command, env []string) {
	proxy := filepath.Join(m.packages, "mcp-remote", "dist", "proxy.js")
	return claude(m, object{"type": "stdio", "command": "node",
		"args": []string{proxy, m.junction, "--allow-http", "--transport", "http-only"},
		"env":  object{"MCP_REMOTE_CONFIG_DIR": m.home}})
}

func claude(m machine, server object) (command, env []string) {
	file := m.write("mcp.json", m.mustJSON(object{"mcpServers": m.entry(server)}))
	// A hook accepts every elicitation in place of a person.
	accept := object{"type": "command", "command": "echo '" + m.mustJSON(object{"hookSpecificOutput": object{
		"hookEventName": "Elicitation", "action": "accept", "content": object{"answer": "Allow once"}}}) + "'"}
	settings := object{"hooks": object{"Elicitation": []any{object{"hooks": []any{accept}}}}}
	command = []string{m.binary("@anthropic-ai/claude-code-*/claude"), "-p", prompt,
		"--mcp-config", file, "--allowedTools", "mcp__junction", "--settings", m.mustJSON(settings)}
	if !m.connected {
		command = append(command, "--strict-mcp-config")
	}
	return command, []string{"ANTHROPIC_BASE_URL=" + m.model, "ANTHROPIC_API_KEY=none",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ENABLE_TOOL_SEARCH=false", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1"}
}

func codex(m machine) (command, env []string) { return codexWith(m, "") }

func codexListChanged(m machine) (command, env []string) {
	return codexWith(m, "[features]\nmcp_tool_list_changed = true\n")
}

// codexModern speaks 2026-07-28. It opens no subscription, with the flag of codexListChanged
// either.
func codexModern(m machine) (command, env []string) {
	return codexWith(m, "[features]\nmcp_2026_07_28 = true\nmcp_tool_list_changed = true\n")
}

func codexWith(m machine, more string) (command, env []string) {
	if !m.connected {
		more = fmt.Sprintf("[mcp_servers.junction]\nurl = %q\n", m.junction) + more
	}
	m.write(".codex/config.toml", fmt.Sprintf(`model = "stand-in"
model_provider = "local"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.local]
name = "local"
base_url = "%s/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"
[projects.%q]
trust_level = "trusted"
%s`, m.model, m.work(), more))
	command = []string{m.binary("@openai/codex-*/vendor/*/bin/codex"), "exec", "--skip-git-repo-check",
		"--dangerously-bypass-approvals-and-sandbox", prompt}
	if m.person {
		command = []string{command[0], "--sandbox", "danger-full-access", prompt}
	}
	return command, []string{"STAND_IN_KEY=none"}
}

func geminiCLI(m machine) (command, env []string) {
	m.write(".gemini/settings.json", m.mustJSON(object{
		"mcpServers": m.entry(object{"httpUrl": m.junction, "trust": true}),
		"security":   object{"auth": object{"selectedType": "gemini-api-key"}},
		"privacy":    object{"usageStatisticsEnabled": false},
		"general":    object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
		"telemetry":  object{"enabled": false},
	}))
	node, script := m.binary("node-*/bin/node"), filepath.Join(m.packages, "@google", "gemini-cli", "bundle", "gemini.js")
	return []string{node, script, "-p", prompt, "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"},
		[]string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + m.model, "GEMINI_CLI_NO_RELAUNCH=true"}
}

func copilot(m machine) (command, env []string) {
	m.write(".copilot/mcp-config.json", m.mustJSON(object{"mcpServers": m.entry(
		object{"type": "http", "url": m.junction, "tools": []string{"*"}})}))
	how := "-p"
	if m.person {
		how = "-i"
	}
	return []string{m.binary("@github/copilot-*/copilot"), how, prompt,
			"--allow-all-tools", "--disable-client-telemetry", "--no-auto-update"},
		[]string{"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL=" + m.model + "/v1", "COPILOT_MODEL=stand-in",
			"COPILOT_AUTO_UPDATE=false", "COPILOT_ALLOW_ALL=true"}
}

func opencode(m machine) (command, env []string) {
	m.write(".config/opencode/opencode.json", m.mustJSON(object{
		"model": "local/stand-in", "small_model": "local/stand-in", "autoupdate": false, "share": "disabled",
		"provider": object{"local": object{"npm": "@ai-sdk/openai-compatible", "name": "local",
			"options": object{"baseURL": m.model + "/v1", "apiKey": "none"},
			"models":  object{"stand-in": object{"name": "stand-in", "tool_call": true}}}},
		"mcp": m.entry(object{"type": "remote", "url": m.junction, "enabled": true}),
	}))
	return []string{m.binary("opencode-linux-*/bin/opencode"), "run", "--print-logs", "--auto", prompt},
		[]string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
}

// run is an agent that works on the prompt.
type run struct {
	t     *testing.T
	model *model
	out   *process.Output
	ended chan struct{}
	err   error // how it ended, after ended is closed
}

// startAgent starts an agent in a home of its own, or in the home of an earlier run.
func startAgent(t *testing.T, a agent, home string, p *program) *run {
	t.Helper()
	m := startModel(t, a.wire)
	return startOn(a, m, newMachine(t, home, m, p), nil)
}

// startOn starts an agent on a machine. more are further variables of its environment.
func startOn(a agent, m *model, where machine, more []string) *run {
	t := where.t
	t.Helper()
	command, env := a.prepare(where)
	if where.connected {
		where.mustConnect(a)
	}
	r := &run{t: t, model: m, out: process.NewOutput(), ended: make(chan struct{})}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = where.work()
	cmd.Env = slices.Concat(where.environment(), []string{"TERM=dumb", "NO_COLOR=1"}, env, more)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		r.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-r.ended
		if t.Failed() {
			t.Logf("%s writes:\n%s", strings.Join(command, " "), r.out.Tail(4000))
			t.Logf("the model requests of %s:\n%s", a.name, m.log.Tail(6000))
		}
	})
	return r
}

// next returns the next model request.
func (r *run) next() *turn {
	r.t.Helper()
	return r.model.next(r.t, r.ended)
}

// finish answers the last request, and expects the agent to end well with the answer in its output.
func (r *run) finish(last *turn) {
	r.t.Helper()
	const farewell = "All calls are made."
	last.say(farewell)
	for {
		select {
		case again := <-r.model.turns:
			again.say(farewell) // an agent may ask for a summary
			continue
		case <-r.ended:
		case <-time.After(patience):
			r.t.Fatalf("the agent does not end within %v of the last answer", patience)
		}
		break
	}
	if r.err != nil || !strings.Contains(r.out.String(), farewell) {
		r.t.Errorf("the agent ends with %v, want its output to contain %q", r.err, farewell)
	}
}
