package view

import (
	"testing"
	"time"

	"junction/upstream/raw"
)

// TestReused: results are reused only if the tool declares itself read-only and idempotent, once and
// as booleans.
func TestReused(t *testing.T) {
	for definition, want := range map[string]bool{
		`{"annotations":{"readOnlyHint":true,"idempotentHint":true}}`:                       true,
		`{"annotations":{"readOnlyHint":true}}`:                                             false,
		`{"annotations":{"idempotentHint":true}}`:                                           false,
		`{"annotations":{"readOnlyHint":false,"idempotentHint":true}}`:                      false,
		`{"annotations":{"readOnlyHint":true,"idempotentHint":"true"}}`:                     false,
		`{"annotations":{"readOnlyHint":true,"idempotentHint":true,"idempotentHint":true}}`: false,
		`{"readOnlyHint":true,"idempotentHint":true}`:                                       false,
	} {
		o, err := raw.Parse([]byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := Reused(o, time.Minute); got != want {
			t.Errorf("the results of %s are reused: %t, want %t", definition, got, want)
		}
		if _, got := Reused(o, 0); got {
			t.Errorf("the results of %s are reused without a duration", definition)
		}
	}
}
