package shell

import (
	"path/filepath"
	"slices"
	"strings"
)

// This file finds the words of a command whose meaning depends on the folder in which it starts.

var (
	// installers run a package, which they take from the folder in which they start if it is there.
	installers = []string{"npx", "uvx", "bunx", "pnpx", "deno", "pipx"}
	// containers run commands where the folders of this machine have other paths.
	containers = []string{"docker", "podman"}
	// runners run what files of the folder name in which they start: scripts, targets, packages of a project.
	runners = []string{"uv", "poetry", "pipenv", "pdm", "hatch", "npm", "pnpm", "yarn", "bundle", "cargo", "go",
		"make", "just", "dotnet"}
	shells       = []string{"sh", "bash", "dash", "zsh"}
	interpreters = []string{"node", "bun", "tsx", "python", "python3", "ruby", "perl", "php", "bash", "sh"}
)

// ProgramName returns the name of the program of a command, without its folder and the ending of Windows.
func ProgramName(word string) string {
	name := filepath.Base(strings.ReplaceAll(word, `\`, "/"))
	for _, ending := range []string{".exe", ".cmd"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}

// Contains reports whether a command runs in a container.
func Contains(program string) bool { return slices.Contains(containers, ProgramName(program)) }

// Installs reports whether a program runs a package, which it may have to download first.
func Installs(program string) bool {
	return Contains(program) || slices.Contains(installers, ProgramName(program))
}

// Interprets reports whether a program runs a script that its first argument names.
func Interprets(program string) bool { return slices.Contains(interpreters, ProgramName(program)) }

// Relative returns the words of a command that are paths relative to the folder in which it starts: the
// program, a script, and arguments that exist there. A word that is no plain text must be "". has reports
// whether the folder has a path; nil means that the folder is not known.
func Relative(command []string, has func(path string) bool) (words []string) {
	if len(command) == 0 || Contains(command[0]) {
		return nil
	}
	if program := command[0]; isRelative(program) && strings.ContainsAny(program, `/\`) {
		words = append(words, program)
	}
	known := has != nil
	if !known {
		has = func(string) bool { return false }
	}
	pack := Installs(command[0]) // the next word that is no flag is the package
	for i, word := range command[1:] {
		flag := strings.HasPrefix(word, "-")
		switch {
		case flag:
			_, word, _ = strings.Cut(word, "=")
		case pack && word != "":
			pack = false
			continue
		case i > 0 && command[i] == "-m" && Interprets(command[0]):
			path := strings.ReplaceAll(word, ".", "/")
			if isRelative(word) && (has(path+".py") || has(path+"/__main__.py")) {
				words = append(words, word)
			}
			continue
		}
		script := i == 0 && !flag && !known && Interprets(command[0])
		if isRelative(word) && (dotted(word) || has(word) || script) {
			words = append(words, word)
		}
	}
	return words
}

// maxPath is the number of bytes of the longest word that is taken for a path.
const maxPath = 1 << 10

// isRelative reports whether a word can be a relative path.
func isRelative(word string) bool {
	return word != "" && len(word) < maxPath && !filepath.IsAbs(word) && filepath.VolumeName(word) == "" &&
		!strings.ContainsAny(word[:1], `~@/\$-`) && !strings.Contains(word, "://") &&
		!strings.ContainsAny(word, "\n\x00")
}

// dotted reports whether a word is a relative path by its form.
func dotted(word string) bool {
	word = strings.ReplaceAll(word, `\`, "/")
	return word == "." || word == ".." || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../")
}

// RunsFrom returns, as a clause, why a command runs a program that lies in the folder in which it starts, if one
// is there; "" if it does not. A package of a fixed version is looked up there, too.
func RunsFrom(command []string) string {
	command = unwrapped(command)
	if len(command) == 0 {
		return ""
	}
	program := command[0]
	name := ProgramName(program)
	has := func(flags ...string) bool {
		return slices.ContainsFunc(command[1:], func(word string) bool { return slices.Contains(flags, word) })
	}
	python := strings.HasPrefix(name, "python")
	switch words := Relative(command, nil); {
	case Installs(program) && !Contains(program):
		return name + " runs a package that lies in that folder"
	case slices.Contains(runners, name):
		return name + " reads what to run from that folder"
	case python && has("-I", "-P"): // it imports nothing from there
	case Interprets(program) && has("-m"):
		return name + " -m runs a module that lies in that folder"
	case python && has("-c"):
		return name + " -c imports modules that lie in that folder"
	case slices.Contains(shells, name) && has("-c"):
		return scriptRuns(command[1:])
	case len(words) > 0 && (words[0] == program || Interprets(program)):
		return words[0] + " is a program in that folder"
	}
	return ""
}

// unwrapped returns the command that env or cmd /c runs; other commands as they are.
func unwrapped(command []string) []string {
	for len(command) > 0 {
		rest := command[1:]
		switch strings.ToLower(ProgramName(command[0])) {
		case "env":
			command = afterVariables(rest)
		case "cmd":
			if len(rest) == 0 || !strings.EqualFold(rest[0], "/c") {
				return command
			}
			command = rest[1:]
		default:
			return command
		}
	}
	return nil
}

// afterVariables returns the words behind flags and variables (NAME=VALUE).
func afterVariables(words []string) []string {
	at := slices.IndexFunc(words, func(word string) bool {
		return !strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
	})
	if at < 0 {
		return nil
	}
	return words[at:]
}

// scriptRuns is RunsFrom for the commands of the script that follows -c. Words in quotes are not taken apart.
func scriptRuns(words []string) string {
	at := slices.Index(words, "-c") + 1
	if at == len(words) || len(words[at]) > maxScript {
		return ""
	}
	ends := func(r rune) bool { return strings.ContainsRune(";&|\n()", r) }
	for line := range strings.FieldsFuncSeq(words[at], ends) {
		command := afterVariables(strings.Fields(line))
		if len(command) > 0 && command[0] == "exec" {
			command = command[1:]
		}
		if len(command) > 0 && slices.Contains(shells, ProgramName(command[0])) {
			continue
		}
		if why := RunsFrom(command); why != "" {
			return why
		}
	}
	return ""
}

// maxScript is the number of bytes of the longest script that is read.
const maxScript = 16 << 10
