package policy_test

import (
	"testing"

	"gopkg.in/yaml.v3"

	"junction/policy"
	"junction/upstream/raw"
)

func mustConfig(tb testing.TB, text string) policy.Config {
	tb.Helper()
	var c policy.Config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	return c
}

func mustCompile(tb testing.TB, text string) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(mustConfig(tb, text))
	if err != nil {
		tb.Fatalf("Compile: %v\n%s", err, text)
	}
	return p
}

func mustParse(tb testing.TB, arguments string) raw.Object {
	tb.Helper()
	if arguments == "" {
		return raw.Object{}
	}
	o, err := raw.Parse([]byte(arguments))
	if err != nil {
		tb.Fatalf("%v: %s", err, arguments)
	}
	return o
}

func TestSmoke(t *testing.T) {
	p := mustCompile(t, `
- name: developers
  match: { group: [engineering], cidr: 10.0.0.0/8 }
  capabilities: [web, files]
  rules:
    - allow: { upstreams: [files, search] }
    - ask:   { tools: "shell__*" }
    - allow: { tools: shell__run, where: { command: "git *" } }
    - deny:  { tools: shell__run, where: { command: "rm -rf *", /options/cwd: { re: "^/etc" } } }
    - deny:  { resources: "*.env" }
  redact: [secrets, { name: ticket, re: "TCK-[0-9]{8}" }]
  validate: true
  limits: { rate: 60/m, burst: 20, concurrent: 8 }
`)
	_ = p
	d, err := policy.Open().Decide(policy.Subject{}, policy.Item{Names: []string{"a"}}, raw.Object{})
	if err != nil || d.Verdict != policy.Allow {
		t.Fatal(d, err)
	}
	d, err = p.Decide(policy.Subject{Groups: []string{"engineering"}, Kind: "user"}, policy.Item{Names: []string{"a"}, Upstream: "files"}, raw.Object{})
	if err != nil || d.Verdict != policy.Deny {
		t.Fatal(d, err)
	}
}
