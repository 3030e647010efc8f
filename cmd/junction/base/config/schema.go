package config

import (
	_ "embed"
	"strings"
)

// The test makes the schema from the types: go generate writes schema.json, and the test compares.
//
//go:generate go test . -run ^TestSchemaIsThatOfTheTypes$ -update

//go:embed schema.json
var schema string

// Schema returns the JSON Schema of the configuration file (draft 7, which editors know), with the
// comments of the fields as descriptions. It finds unknown keys and values of a wrong form, and no
// mistake that concerns several keys: Load finds these.
func Schema() string { return strings.Clone(schema) }
