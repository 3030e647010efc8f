package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
)

// manCommand is `junction man`, which the packages of a release use to make the manual page. It has no
// date, so that the same version gives the same page.
func manCommand(stdout io.Writer, root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "Print the manual page", Args: cli.NoArguments, Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, manual(root, build.Read().Version))
			return err
		},
	}
}

// manual returns the page junction(1): the program, and a section for each command.
func manual(root *cobra.Command, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH JUNCTION 1 \"\" \"Junction %s\" \"User Commands\"\n", version)
	fmt.Fprintf(&b, ".SH NAME\njunction \\- %s\n.SH SYNOPSIS\n.B junction\n[\\fICOMMAND\\fR] [\\fIFLAGS\\fR]\n",
		roff(root.Short))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s", paragraphs(root.Long))
	options(&b, root)
	b.WriteString(".SH COMMANDS\n")
	commands(&b, root)
	b.WriteString(".SH EXIT STATUS\n0, 1 for a failure, 2 for wrong usage.\n")
	return b.String()
}

// commands adds the commands of cmd, and theirs.
func commands(b *strings.Builder, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		fmt.Fprintf(b, ".SS %s\n", roff(sub.UseLine()))
		text := sub.Long
		if text == "" {
			text = sub.Short + "."
		}
		b.WriteString(paragraphs(text))
		options(b, sub)
		commands(b, sub)
	}
}

// options adds the flags of cmd that its parents do not have.
func options(b *strings.Builder, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(short+"--"+f.Name+" "+name)), roff(usage))
	})
}

// paragraphs formats a text of the help. Lines that are indented stay as they are.
func paragraphs(text string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(part, "  ") {
			fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(part))
		} else {
			fmt.Fprintf(&b, ".PP\n%s\n", roff(part))
		}
	}
	return b.String()
}

// roff escapes text: a backslash, a hyphen that is typed, what is not ASCII, and a line that would be a
// request.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
