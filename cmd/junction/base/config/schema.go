package config

import (
	_ "embed"
	"strings"
)

// Tests make the schema from the types, and the comments of keys in documents from those of the fields: go
// generate writes them, and the tests compare.
//
//go:generate go test . -run ^Test(SchemaIs|KeysHave|ReadmeHas) -update

//go:embed schema.json
var schema string

// Schema returns the JSON Schema of the configuration file (draft 7, which editors know), with the
// comments of the fields as descriptions. It finds unknown keys and values of a wrong form, and no
// mistake that concerns several keys: Load finds these.
func Schema() string { return strings.Clone(schema) }
