package stdio

import (
	"slices"
	"strings"
	"testing"
)

// TestCommandsGetFewVariables gives a command the environment of a typical proxy.
func TestCommandsGetFewVariables(t *testing.T) {
	ours := []string{
		"HOME=/h", "PATH=/bin", "LC_ALL=C", "XDG_CACHE_HOME=/c", "https_proxy=http://p", "npm_config_cache=/n", "UV_INDEX_URL=https://r",
		"npm_config__authToken=s", "npm_config_registry=https://u:s@r", "PIP_INDEX_URL=https://u:s@r", "UV_PUBLISH_TOKEN=s",
		"JUNCTION_MASTER_KEYS=s", "OTEL_EXPORTER_OTLP_HEADERS=s", "DATABASE_URL=s", "GITHUB_TOKEN=s", "AWS_SECRET=s", "AWS_REGION=eu", "TERM=() { :; }",
	}
	defaults := []string{"HOME=/h", "PATH=/bin", "LC_ALL=C", "XDG_CACHE_HOME=/c", "https_proxy=http://p", "npm_config_cache=/n", "UV_INDEX_URL=https://r"}
	for name, row := range map[string]struct {
		entry Environment
		more  []string
	}{
		"nothing is said":                    {Environment{}, nil},
		"env":                                {Environment{Own: map[string]string{"GITHUB_TOKEN": "own"}}, []string{"GITHUB_TOKEN=own"}},
		"a glob":                             {Environment{Inherit: []string{"AWS_*"}}, []string{"AWS_SECRET=s", "AWS_REGION=eu"}},
		"a glob, and a variable of the file": {Environment{Inherit: []string{"AWS_*"}, Reserved: []string{"AWS_SECRET"}}, []string{"AWS_REGION=eu"}},
		"by its exact name":                  {Environment{Inherit: []string{"AWS_SECRET"}, Reserved: []string{"AWS_SECRET"}}, []string{"AWS_SECRET=s"}},
		"a glob over keys of OpenTelemetry":  {Environment{Inherit: []string{"OTEL_*"}}, nil},
		"a glob over ours":                   {Environment{Inherit: []string{"JUNCTION_*"}}, nil},
		"ours by its exact name":             {Environment{Inherit: []string{"JUNCTION_MASTER_KEYS"}}, []string{"JUNCTION_MASTER_KEYS=s"}},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := append(slices.Clone(defaults), row.more...), row.entry.variables(ours)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("the command gets %q, want %q", got, want)
			}
		})
	}
	all := Environment{Inherit: []string{"all"}, Reserved: []string{"DATABASE_URL"}}.variables(ours)
	if slices.Contains(all, "DATABASE_URL=s") || slices.Contains(all, "JUNCTION_MASTER_KEYS=s") ||
		slices.Contains(all, "OTEL_EXPORTER_OTLP_HEADERS=s") || !slices.Contains(all, "GITHUB_TOKEN=s") {
		t.Errorf("with all the command gets %q", all)
	}
}

// TestProcessDoesNotSeeOurKeys starts a real process.
func TestProcessDoesNotSeeOurKeys(t *testing.T) {
	t.Setenv("JUNCTION_MASTER_KEYS", "secret")
	t.Setenv("SOME_API_KEY", "secret")
	cmd, err := command(Options{Command: []string{"env"}, Env: Environment{Own: map[string]string{"OWN": "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if text := string(out); err != nil || !slices.Contains(strings.Split(text, "\n"), "OWN=1") || slices.Contains(strings.Split(text, "\n"), "SOME_API_KEY=secret") || slices.Contains(strings.Split(text, "\n"), "JUNCTION_MASTER_KEYS=secret") {
		t.Errorf("the process has %s (%v)", text, err)
	}
}
