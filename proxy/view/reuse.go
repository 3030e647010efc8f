package view

import (
	"fmt"
	"time"

	"junction/upstream/raw"
)

// idempotent reports whether a tool declares itself read-only and idempotent, so that its results
// may be reused.
func idempotent(definition raw.Object) bool {
	annotations, _ := definition.Object("annotations")
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if v, err := annotations.Get(hint); err != nil || string(v) != "true" {
			return false
		}
	}
	return true
}

// Reused describes for an operator what the key cache means for a tool; "" if no cache is configured
// for the tool. effect is false if the tool does not declare what the cache needs.
func Reused(definition raw.Object, lasts time.Duration) (text string, effect bool) {
	switch {
	case lasts <= 0:
		return "", false
	case !idempotent(definition):
		return "has no effect: the server does not declare readOnlyHint: true and idempotentHint: true", false
	}
	return fmt.Sprintf("the same call of the same caller is answered from the cache for %s", lasts), true
}
