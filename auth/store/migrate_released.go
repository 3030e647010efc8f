//go:build !inventedschema

package store

// invented returns no step: see migrate_invented.go.
func invented() []step { return nil }
