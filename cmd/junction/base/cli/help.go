package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// part is a section of the list of commands.
type part struct {
	title    string
	commands []string
}

// partsOfHelp are the parts of the list of commands, in their order. Other commands come last.
func partsOfHelp() []part {
	return []part{
		{"Set up:", []string{"setup", "import", "add", "search", "list", "remove", "enable", "disable", "packs",
			"folders", "connect", "disconnect", "login", "logout", "service", "stdio"}},
		{"Watch:", []string{"status", "tools", "skills", "call", "why", "doctor", "logs", "console", "reconnect",
			"audit", "pins"}},
		{"Team:", []string{"keys", "auth", "users", "clients", "grants", "sessions"}},
		{"Operate:", []string{"check", "schema", "health", "storage", "replicas",
			"version", "completion", "demo", "help"}},
	}
}

// SetHelp gives a root command its help: commands in groups and in our order, and lines that fit the terminal, with at
// most prose.Width columns. All other commands must have been added.
func SetHelp(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, g := range partsOfHelp() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.commands, cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
		if slices.Contains(g.commands, "help") {
			root.SetHelpCommandGroupID(g.title)
		}
	}
	template := root.UsageTemplate()
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		width := NewPage(out).Columns()
		root.SetUsageTemplate(strings.ReplaceAll(ordered(template, root), "FlagUsages ",
			"FlagUsagesWrapped "+strconv.Itoa(width)+" "))
		about := cmd.Long
		if about == "" {
			about = cmd.Short
		}
		_, _ = io.WriteString(out, Fit(fmt.Sprintf("%s\n\n%s", reflow(about), cmd.UsageString()), width))
	})
}

// ordered returns a template of cobra with the commands of each part in the order of partsOfHelp. Cobra
// sorts them by name.
func ordered(template string, root *cobra.Command) string {
	before, rest, found := strings.Cut(template, "{{range $group := .Groups}}")
	_, after, more := strings.Cut(rest, "{{if not .AllChildCommandsHaveGroup}}")
	if !found || !more {
		return template
	}
	list := ""
	for _, g := range partsOfHelp() {
		list += "\n\n" + g.title
		for _, name := range g.commands {
			for _, cmd := range root.Commands() {
				if cmd.Name() == name && !cmd.Hidden {
					list += fmt.Sprintf("\n  %-*s %s", cmd.NamePadding(), name, cmd.Short)
				}
			}
		}
	}
	return before + list + "{{if not .AllChildCommandsHaveGroup}}" + after
}

// reflow joins the lines of each paragraph, and of each item of a list. Other indented lines stay as
// they are.
func reflow(text string) string {
	var b strings.Builder
	lines := strings.Split(strings.TrimSpace(text), "\n")
	item := 0 // the column of the item's text; 0 outside of items
	for i, line := range lines {
		if mark := marked.FindString(line); mark != "" {
			item = utf8.RuneCountInString(mark)
		} else if !strings.HasPrefix(line, " ") {
			item = 0
		}
		if i > 0 && item > 0 && marked.FindString(line) == "" {
			line = strings.TrimLeft(line, " ")
		}
		b.WriteString(line)
		if i == len(lines)-1 {
			break
		}
		next := lines[i+1]
		switch more := marked.FindString(next) == ""; {
		case item > 0 && more && strings.HasPrefix(next, strings.Repeat(" ", item)):
			b.WriteByte(' ')
		case line == "", next == "", strings.HasPrefix(lines[i], " "), strings.HasPrefix(next, " "), !more:
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}
