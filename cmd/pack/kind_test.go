package pack

import (
	"errors"
	"testing"

	"junction/auth/authtest"

	"junction/cmd/pack/manifest"
)

// TestUnknownKindIsNotRun calls a tool that is neither a command, a request nor a prompt, in a pack
// and in its preview, which has no runners.
func TestUnknownKindIsNotRun(t *testing.T) {
	for name, runners := range map[string]Runners{"pack": NewRunners(authtest.Log(t)), "preview": {}} {
		source := &manifest.Tool{Name: "new", Shell: true}
		tool := newTool(&manifest.Manifest{}, source, runners)
		if result, err := tool.run(t.Context(), call{}); !errors.Is(err, errKind) {
			t.Errorf("%s: the call = %+v, %v; want the error that names the kinds", name, result, err)
		}
	}
}
