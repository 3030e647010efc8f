package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/integration/harness"
)

// TestOperateRecipeOfSystemd has systemd check the service: without a warning, and exposed to at
// most 2 of 10.
func TestOperateRecipeOfSystemd(t *testing.T) {
	analyze := program(t, "systemd-analyze")
	file := filepath.Join(t.TempDir(), "junction.service")
	text := recipe(t, "junction.service", "/usr/local/bin/junction", harness.JunctionBinary(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", file).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

// TestOperateRecipeOfTheConfiguration has junction check the configuration of the recipes.
func TestOperateRecipeOfTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := recipe(t, "config.yaml", "${IDP_SECRET}", "canary-secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.JunctionBinary(t), "check", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("junction check: %v\n%s", err, out)
	}
}

// TestOperateRecipeOfKubernetesIsChecked has junction check the configuration of the chart.
func TestOperateRecipeOfKubernetesIsChecked(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "SESSION_KEY")
	text := recipe(t, "kubernetes.yaml", "/etc/junction/secret/SESSION_KEY", key)
	var object struct{ Data map[string]string }
	if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&object); err != nil { // the first of several documents
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(object.Data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.JunctionBinary(t), "check", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "IDP_SECRET=canary-secret", "POD_IP=10.1.2.3",
		"DATABASE_URL=postgres://canary@localhost/j", "JUNCTION_MASTER_KEYS=a:canary")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "WARN") {
		t.Errorf("junction check: %v\n%s", err, out)
	}
}
