package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// Command returns the command service. file points to the value of --config, and proxy is what a service runs. moved
// finds the clients that have another address of Junction.
func Command(stdout, stderr io.Writer, file *string, proxy Proxy, moved admin.ClientFaults) *cobra.Command {
	cmd := &cobra.Command{
		Use: "service", Short: "Start Junction at each login", Args: cli.NoArguments,
		Long: `Start Junction at each login, and again after it has ended.

The service belongs to you: it is a user unit of systemd on Linux, an agent of launchd on macOS, and a task
at logon on Windows. It serves the file of --config, by default your own. Each file has a service of its own.
A mistake in the entry of a server leaves that server out. With another mistake, a start at login serves the last
content of the file that was in force.`,
		Example: `  junction service install
  junction service status
  junction service restart
  junction service uninstall`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(installCommand(stdout, file), statusCommand(stdout, file), startCommand(stdout, file),
		restartCommand(stdout, file, moved), stopCommand(stdout, file), uninstallCommand(stdout, file),
		runService(stdout, stderr, file, proxy))
	return cmd
}

// of returns the service of a command.
func of(flag string) (*Service, string, error) {
	h, err := ThisHost()
	if err != nil {
		return nil, "", err
	}
	file, err := config.File(flag)
	if err != nil {
		return nil, "", err
	}
	s, err := h.Of(file)
	return s, file, err
}

func short(file string) string {
	home, err := clients.HomeOf("")
	if err != nil {
		return prose.OneLine(file)
	}
	return prose.OneLine(home.Short(file))
}

// statusJSON is the output of --json.
type statusJSON struct {
	Service   string `json:"service"`
	Manager   string `json:"manager"`
	File      string `json:"file"` // of the definition
	Config    string `json:"config"`
	Installed bool   `json:"installed"`
	// There is no service: a command has started the process, which may be stopped now.
	Background bool     `json:"background,omitempty"`
	Outdated   bool     `json:"outdated,omitempty"` // the definition differs from that of a new install
	State      string   `json:"state,omitempty"`    // in the words of the manager
	Running    bool     `json:"running"`
	Ending     bool     `json:"ending,omitempty"` // the process ends, and accepts no new connections
	PID        int      `json:"pid,omitempty"`
	User       string   `json:"user,omitempty"` // of a process that has no run file of this user
	URL        string   `json:"url,omitempty"`
	Public     string   `json:"public_url,omitempty"`
	Version    string   `json:"version,omitempty"` // of the process
	Newer      string   `json:"on_disk,omitempty"` // the version of the program that a restart would start
	Log        string   `json:"log"`
	Failure    string   `json:"failure,omitempty"` // why the last process has ended
	Mistake    string   `json:"mistake,omitempty"` // the first one of the file, if no process serves it
	Gone       string   `json:"gone,omitempty"`    // the file does not exist any more, and how it comes back
	Reload     string   `json:"reload,omitempty"`  // why the file is not in force
	InPart     bool     `json:"in_part,omitempty"` // the stricter of the old file and the new one decides
	Variables  []string `json:"variables,omitempty"`
	// The upstreams that the start has left out, because of mistakes.
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

func (s *Service) status(ctx context.Context) statusJSON {
	j := statusJSON{Service: s.unit.Name, Manager: s.manager.name(), File: s.file, Config: s.unit.File,
		Log: s.log(), LeftOut: s.Left}
	text := s.present()
	if j.Installed = ours(text); j.Installed {
		j.Outdated = string(text) != string(s.text)
		j.State = prose.OneLine(s.manager.state(ctx, s.unit))
	}
	p, present := runfile.Present(s.unit.File)
	if other, serves := admin.ServedAt(ctx, s.unit.File); serves && other.Other() {
		p, present, j.User = other.Place, true, other.User
	}
	if b, ok := runfile.LastBackground(s.unit.File); ok && !j.Installed && (!present || p.Is(b.Process)) {
		j.Background, j.Log = true, b.Log
	}
	if j.Running, j.Ending = present && !p.Ending(), p.Ending(); j.Ending {
		j.PID, j.URL, j.Public = p.PID, p.URL, p.Public
	} else if j.Running {
		j.PID, j.URL, j.Public = p.PID, p.URL, p.Public
		ctx, cancel := context.WithTimeout(ctx, statusLimit)
		defer cancel()
		if r, err := admin.AwaitReload(ctx, s.unit.File); err == nil {
			j.Reload, j.Version, j.Newer = r.Reload, r.Version, r.Installed
			j.InPart = r.Partial != nil
		}
	} else {
		j.Failure = runfile.Ended(s.unit.File)
		var err error
		if j.Mistake, err = config.Broken(s.unit.File); err != nil {
			j.Mistake = err.Error()
		}
	}
	if _, err := os.Lstat(s.unit.File); errors.Is(err, fs.ErrNotExist) {
		j.Gone, j.Mistake, j.Reload = short(s.unit.File)+" is gone", "", ""
		if j.Running {
			j.Gone += ", and Junction goes on with the content that it has"
		}
		kept, _ := config.LastGood(s.host.Getenv, s.unit.File)
		j.Gone += revision.Lost(s.unit.File, kept, short)
	}
	return j
}

// failed reports whether the last process has ended because it could not serve.
func (s *Service) failed() bool {
	failure, _ := runfile.Failure(s.host.Getenv, s.unit.File)
	return failure != ""
}

// statusLimit is how long the running junction may take to read a changed file.
const statusLimit = 3 * time.Second

func statusCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the service of a configuration file", Args: cli.NoArguments,
		Long: `Show the service of a configuration file, or the process in the background that junction setup has
started. The exit code is 1 if there is neither, or if it does not run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, path, err := of(*file)
			if err != nil {
				return err
			}
			j := s.status(cmd.Context())
			if err := cli.Print(stdout, asJSON, j, j.text(path)); err != nil {
				return err
			}
			switch {
			case j.User != "":
				return nil
			case !j.Installed && !j.Background:
				return errors.New(s.absent(cmd.Context()))
			case !j.Running && j.Gone != "":
				return errors.New("junction does not run; bring the file back, and run: " +
					config.Command(path, "service", "start"))
			case !j.Running && j.Mistake != "":
				return errors.New("junction does not run; correct the file, and run: " +
					config.Command(path, "service", "start"))
			case !j.Running && s.failed():
				return errors.New("junction does not run; correct what is named above, and run: " +
					config.Command(path, "service", "start"))
			case !j.Running:
				return errors.New("junction does not run; start it with: " + config.Command(path, "service", "start"))
			}
			return nil
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

func (j *statusJSON) text(file string) string {
	var b strings.Builder
	row := func(name, value string) { fmt.Fprintf(&b, "%-8s %s\n", name, prose.OneLine(value)) }
	if j.Installed {
		row("Service", fmt.Sprintf("%s, %s (%s)", j.Service, short(j.File), j.Manager))
		row("State", j.State)
	} else if j.User != "" {
		row("Service", "none of your own")
	} else if j.Background {
		row("Service", "none; a process in the background, until the machine ends")
	} else {
		row("Service", "none")
	}
	row("File", short(j.Config))
	if j.Running {
		serves := fmt.Sprintf("%s, process %d", runfile.Addresses(j.URL, j.Public), j.PID)
		switch {
		case j.User == runfile.User():
			serves += ", which has another folder for state"
		case j.User != "":
			serves += " of the user " + prose.Quote(j.User)
		}
		if j.Version != "" {
			serves += ", version " + j.Version
		}
		row("Serves", serves)
	} else if j.Ending {
		row("Serves", fmt.Sprintf("nothing new; process %d is ending", j.PID))
	} else {
		row("Serves", "nothing now")
	}
	if j.Failure != "" {
		row("Failed", j.Failure)
	}
	if j.Gone != "" {
		row("Mistake", j.Gone)
	}
	if j.Mistake != "" {
		row("Mistake", prose.Tilde(j.Mistake))
	}
	if j.InPart {
		row("Mistake", "the file is in force only in part: "+j.Reload+"; see: "+config.Command(file, "status"))
	} else if j.Reload != "" {
		row("Mistake", "the file is not in force: "+j.Reload+"; Junction serves its last good content; see: "+
			config.Command(file, "check"))
	}
	if j.Installed || j.Background {
		row("Log", prose.Tilde(j.Log))
	}
	if j.Newer != "" {
		row("Next", "the program on disk is "+j.Newer+"; run it with: "+config.Command(file, "service", "restart"))
	}
	if j.Outdated {
		row("Next", "the service is of an older install or another shell; renew it with: "+
			config.Command(file, "service", "install"))
	}
	return b.String()
}

func installCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON, keep bool
	var agree func(*Service) func([]LeftOut) error
	cmd := &cobra.Command{
		Use: "install", Short: "Install the service, and start it", Args: cli.NoArguments,
		Long: `Install the service, and start it. A second run renews the service and starts it again.

The service has these variables of this shell, so that it finds and starts the same commands: PATH, the folders
(XDG_...), the proxies, the certificates (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS), and the settings of npm, uv, pip and
version managers, such as caches and registries. A URL of a registry with a password is left out. The service has
no other variables: write them as NAME=VALUE into CONFIG.environment, beside the configuration CONFIG,
which only you may read, or let --keep-env write them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, path, err := of(*file)
			if err != nil {
				return err
			}
			s.Agree = agree(s)
			lacking := Lacking(path)
			notes, restore := "", func() error { return nil }
			if len(lacking) > 0 && keep {
				if restore, err = remember(config.EnvironmentOf(path)); err != nil {
					return err
				}
				name, err := KeepVariables(path, lacking)
				if err != nil {
					return err
				}
				notes = fmt.Sprintf("Kept %s in %s.", strings.Join(lacking, ", "), short(name))
			} else if len(lacking) > 0 {
				notes = lacks(path, lacking, "service", "install", "--keep-env")
			}
			p, err := s.Install(cmd.Context())
			if _, serves := errors.AsType[*LastGoodError](err); err != nil && !serves {
				return errors.Join(err, restore())
			} else if err != nil {
				return err
			}
			j := s.status(cmd.Context())
			j.Variables = lacking
			said := fmt.Sprintf("Installed the service %s, which serves %s at %s.\n%s\n", s.Name(), short(path),
				p.Serves(), s.Later())
			if notes != "" {
				said += notes + "\n"
			}
			said += s.leftOut()
			return cli.Print(stdout, asJSON, j, said)
		},
	}
	agree = withoutFlag(cmd)
	cli.JSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&keep, "keep-env", false, "keep the variables of this shell that the configuration uses")
	return cmd
}

func startCommand(stdout io.Writer, file *string) *cobra.Command {
	return lifeCommand(stdout, file, &cobra.Command{
		Use: "start", Short: "Start the service, or the process in the background", Args: cli.NoArguments,
		Long: `Start the service, or the process in the background that was started before. Where no service manager
answers, such as in a container, the first start needs no service: it starts a process in the background, which runs
until the machine ends. The command does nothing if Junction runs.`,
	}, func(ctx context.Context, s *Service, path string) (string, error) {
		_, known := runfile.LastBackground(s.unit.File)
		p, serves, err := s.Start(ctx)
		if serves {
			return runsAlready(path, p), nil
		}
		said, err := s.said(path, "Started Junction", p, err)
		if b, background := runfile.InBackground(s.unit.File); err == nil && background && !known {
			said += fmt.Sprintf("No service manager answers: Junction runs in the background until the machine ends. "+
				"Its log: %s\nAfter a reboot, start it again with: %s\n", prose.Tilde(b.Log),
				config.Command(path, "service", "start"))
		}
		if err == nil {
			said += "Look at the servers with: " + config.Command(path, "status") + "\n"
		}
		return said, err
	})
}

func runsAlready(path string, p runfile.Place) string {
	return fmt.Sprintf("Junction runs already; it serves %s at %s (process %d).\n", short(path), p.Serves(), p.PID)
}

func restartCommand(stdout io.Writer, file *string, moved admin.ClientFaults) *cobra.Command {
	var agree func(*Service) func([]LeftOut) error
	cmd := lifeCommand(stdout, file, &cobra.Command{
		Use: "restart", Short: "Start the service again, or the process in the background", Args: cli.NoArguments,
		Long: `Start the service again, or the process in the background, also if it was stopped. The file is
checked while the old process serves. If servers that run now would not run after the restart, because their
entries have mistakes, the command names them, and asks; without a terminal it fails, unless --without names
them. Calls in flight may end first, within shutdown_grace. The process has no variables of this shell but those
that junction service install names.`,
	}, func(ctx context.Context, s *Service, path string) (string, error) {
		s.Agree = agree(s)
		said := "Started Junction again"
		if _, running := runfile.Find(s.unit.File); !running {
			said = "Junction was stopped. Started it"
		}
		p, err := s.Restart(ctx)
		said, err = s.said(path, said, p, err)
		if err == nil {
			for _, f := range moved(path) {
				said += prose.OneLine(prose.Tilde(f.Text)) + ".\n"
				said += prose.OneLine(prose.Tilde("To correct that, "+f.Advice)) + "\n"
			}
		}
		return said, err
	})
	agree = withoutFlag(cmd)
	return cmd
}

// said returns the sentences about a process that was started. said is the beginning.
func (s *Service) said(path, said string, p runfile.Place, err error) (string, error) {
	if err != nil {
		return "", err
	}
	said += fmt.Sprintf("; it serves %s at %s (process %d).\n", short(path), p.Serves(), p.PID)
	if lacking := Lacking(path); len(lacking) > 0 && s.Installed() {
		said += lacks(path, lacking, "service", "install", "--keep-env") + "\n"
	} else if len(lacking) > 0 {
		said += lacks(path, lacking, "setup") + "\n"
	}
	if text := config.ReadableEnvironment(s.unit.File); text != "" {
		said += "Warning: " + prose.Flat(prose.Tilde(text)) + "\n"
	}
	return said + s.leftOut(), nil
}

// lifeCommand completes a command that starts or stops Junction. run returns the sentences about it.
func lifeCommand(stdout io.Writer, file *string, cmd *cobra.Command,
	run func(ctx context.Context, s *Service, path string) (string, error)) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, path, err := of(*file)
		if err != nil {
			return err
		}
		said, err := run(cmd.Context(), s, path)
		if err != nil {
			return err
		}
		return cli.Print(stdout, asJSON, s.status(cmd.Context()), said)
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

func stopCommand(stdout io.Writer, file *string) *cobra.Command {
	return lifeCommand(stdout, file, &cobra.Command{
		Use: "stop", Short: "Stop the service, or the process in the background", Args: cli.NoArguments,
		Long: `Stop the service until the next login, or the process in the background. junction service start
starts it again; junction service uninstall removes the service.`,
	}, func(ctx context.Context, s *Service, path string) (string, error) {
		pid, err := s.Halt(ctx)
		if err != nil {
			return "", err
		}
		said := fmt.Sprintf("Stopped Junction (process %d).", pid)
		if pid == 0 {
			said = "Junction is stopped already: nothing serves " + short(path) + "."
		}
		_, known := runfile.LastBackground(s.unit.File)
		switch start := config.Command(path, "service", "start"); {
		case s.Installed():
			return fmt.Sprintf("%s\nIt starts again when you log in. To start it now, run: %s\n", said, start), nil
		case known:
			return fmt.Sprintf("%s To start it again, run: %s\n", said, start), nil
		}
		return fmt.Sprintf("%s To start it, run: %s\n", said, config.Start(path)), nil
	})
}

// lacks returns the sentence about variables that the process does not have. keep is the command that keeps
// them.
func lacks(path string, lacking []string, keep ...string) string {
	return fmt.Sprintf("Junction does not have these variables of this shell: %s. To keep them in %s, run: %s",
		strings.Join(lacking, ", "), short(config.EnvironmentOf(path)), config.Command(path, keep...))
}

func uninstallCommand(stdout io.Writer, file *string) *cobra.Command {
	return lifeCommand(stdout, file, &cobra.Command{
		Use: "uninstall", Short: "Stop the service, and remove it", Args: cli.NoArguments,
		Long: `Stop the service, and remove it. Without a service, the command stops the process in the
background. The configuration and the files of Junction stay.`,
	}, func(ctx context.Context, s *Service, path string) (string, error) {
		removed, err := s.Uninstall(ctx)
		if err != nil {
			return "", err
		}
		if removed {
			return fmt.Sprintf("Removed the service %s of %s.\n", s.Name(), short(path)), nil
		}
		said := "No service of " + short(path) + " is installed.\n"
		if _, known := runfile.LastBackground(s.unit.File); known {
			pid, err := s.host.stopBackground(ctx, s.unit.File)
			if err != nil {
				return "", err
			}
			if pid > 0 {
				said += fmt.Sprintf("Stopped Junction, which ran in the background (process %d).\n", pid)
			}
			s.host.Forget(s.unit.File)
		}
		return said, nil
	})
}
