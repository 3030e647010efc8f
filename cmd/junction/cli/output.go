package cli

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

// OutputFlag registers --output, and --json as its short form unless the command has another flag of
// that name.
func OutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
	if cmd.Flags().Lookup("json") != nil {
		return
	}
	cmd.Flags().BoolFunc("json", "print JSON; the same as --output json", func(text string) error {
		on, err := strconv.ParseBool(text)
		if *output = "text"; on {
			*output = "json"
		}
		return err
	})
}

// JSONFlag registers --json for a command that has no --output.
func JSONFlag(cmd *cobra.Command, on *bool) { cmd.Flags().BoolVar(on, "json", false, "print JSON") }

// PrintValue writes a value as indented JSON.
func PrintValue(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return PrintJSON(w, raw)
}
