package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Words splits a command that a client has in one text, such as "npx -y notes". It returns nil if
// the text is a program, or if only a shell can read it.
func Words(line string) (words []string) {
	if !strings.ContainsAny(line, " \t") || strings.ContainsAny(line, "|&;<>`\n") {
		return nil
	}
	if _, err := os.Stat(line); err == nil { // a program in a folder whose name has a space
		return nil
	}
	word, quote, begun := "", rune(0), false
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(c), true
		}
	}
	if begun {
		words = append(words, word)
	}
	// A path with a space, such as C:\Program Files\x.exe, is one word although this machine lacks it.
	if quote != 0 || len(words) < 2 || strings.ContainsAny(words[0], `/\`) && !isProgram(words[0]) {
		return nil
	}
	return words
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// separate splits a command that is one text with several words.
func (r *reader) separate(command string, args []string) (string, []string) {
	words := Words(command)
	if words == nil {
		return command, args
	}
	r.note("its command is one text, which Junction splits into words")
	return words[0], append(words[1:], args...)
}

// Lacks returns the program of the command if this machine does not have it, or "". getenv is the
// environment of the program that would start the command.
func (e *Entry) Lacks(getenv func(string) (string, bool)) string {
	if !e.Runs() || e.Off {
		return ""
	}
	program, dir := e.Command[0].Expand(getenv), e.Dir.Expand(getenv)
	if _, own := e.Env["PATH"]; own || len(e.Command[0].Variables()) > 0 || strings.Contains(program+dir, "${") {
		return "" // other folders count, or a value is missing
	}
	if strings.ContainsAny(program, `/\`) && !filepath.IsAbs(program) {
		if dir == "" {
			return "" // the folder of Junction is not known
		}
		program = filepath.Join(dir, program)
	}
	if _, err := exec.LookPath(program); err == nil {
		return ""
	}
	return short(program)
}

// Relative returns the note about a command with a path that begins in a folder that the entry does not name; ""
// for another one. A client takes the folder where it was started, and Junction blocks the command in a service.
func (e *Entry) Relative() string {
	if !e.Runs() || len(e.Dir) > 0 {
		return ""
	}
	for _, word := range e.relatives("") {
		return short(word) + " is a relative path, and the client's file does not say in which folder it begins; " +
			"write the full path into command, or the folder into dir"
	}
	return ""
}

// NotInstalled returns the sentence about a program that Lacks returns, without a full stop.
func NotInstalled(program string) string {
	return program + " is not installed; the server cannot start until it is"
}

// image returns the image that the arguments of docker or podman run; "" if it cannot be found.
func image(args []string) string {
	at := slices.Index(args, "run")
	if at < 0 {
		return ""
	}
	for args = args[at+1:]; len(args) > 0; args = args[1:] {
		flag := args[0]
		switch {
		case !strings.HasPrefix(flag, "-"):
			return flag
		case strings.HasPrefix(flag, "--"):
			if !strings.Contains(flag, "=") && !slices.Contains(dockerSwitches, flag) {
				args = args[1:]
			}
		default: // of letters such as -ie, the first with a value ends the flag
			rest := strings.TrimLeft(flag[1:], "itdPq")
			if len(rest) == 1 {
				args = args[1:]
			}
		}
		if len(args) == 0 {
			break
		}
	}
	return ""
}

// dockerSwitches are the flags of docker run without a value.
var dockerSwitches = []string{
	"--detach", "--disable-content-trust", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable",
	"--privileged", "--publish-all", "--quiet", "--read-only", "--replace", "--rm", "--sig-proxy", "--tty",
	"--use-api-socket",
}

// limits returns the time limits of the entry for people.
func (e *Entry) limits() string {
	var parts []string
	if e.Timeout > 0 {
		parts = append(parts, duration(e.Timeout)+" for a call")
	}
	if e.ConnectTimeout > 0 {
		parts = append(parts, duration(e.ConnectTimeout)+" for the start")
	}
	return strings.Join(parts, ", ")
}

// offered returns which tools the entry offers, for people; "" for all of them.
func (e *Entry) offered() string {
	var parts []string
	switch {
	case e.Only != nil && len(e.Only) == 0:
		return "none"
	case e.Only != nil:
		parts = append(parts, "only "+strings.Join(quoted(e.Only), ", "))
	}
	if len(e.Without) > 0 {
		parts = append(parts, "without "+strings.Join(quoted(e.Without), ", "))
	}
	return strings.Join(parts, "; ")
}

// sameTools reports whether two entries offer the same tools.
func (e *Entry) sameTools(o *Entry) bool {
	return (e.Only == nil) == (o.Only == nil) && slices.Equal(quoted(e.Only), quoted(o.Only)) &&
		slices.Equal(quoted(e.Without), quoted(o.Without))
}

// narrow lets the entry offer only tools that another entry offers, too.
func (e *Entry) narrow(o *Entry) {
	switch {
	case e.Only == nil:
		e.Only = slices.Clone(o.Only)
	case o.Only != nil:
		e.Only = slices.DeleteFunc(slices.Clone(e.Only), func(tool string) bool {
			return !slices.Contains(o.Only, tool)
		})
	}
	e.Without = append(slices.Clone(e.Without), o.Without...)
	e.dropHidden()
}

// wider returns the tools that an upstream offers and the entry hides, for people; "" if there are
// none. offers reports whether the upstream offers a tool, and enabled are the only tools that it
// offers; nil means all others, too.
func (e *Entry) wider(offers func(string) bool, enabled []string) string {
	var more []string
	for _, tool := range e.Without {
		if offers(tool) {
			more = append(more, tool)
		}
	}
	if e.Only != nil && enabled == nil {
		return fmt.Sprintf("all but %s", strings.Join(quoted(e.Only), ", "))
	}
	for _, tool := range enabled {
		if e.Only != nil && !slices.Contains(e.Only, tool) && offers(tool) {
			more = append(more, tool)
		}
	}
	return strings.Join(quoted(more), ", ")
}
