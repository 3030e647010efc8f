package authtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"junction/integration/harness/needs"
)

// Postgres returns the DSN of a Postgres for the tests of this process. The environment variable
// JUNCTION_TEST_POSTGRES names it; without the variable, Postgres starts one that ends with the process.
// If Postgres is not installed, the test is skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv("JUNCTION_TEST_POSTGRES"); dsn != "" {
		return dsn
	}
	needs.Postgres.Require(t)
	dsn, err := own().start()
	if err != nil {
		t.Fatalf("start Postgres: %v", err)
	}
	return dsn
}

// StopPostgres ends the Postgres that Postgres has started, if any. Without it, the Postgres ends a
// moment after this process.
func StopPostgres() { own().stop() }

// postgres is the Postgres of this process. A shell runs it, because a process of tests may end at any
// time: the end of the shell's input ends both, and removes the files.
type postgres struct {
	mu    sync.Mutex
	dsn   string
	input io.Closer // of the shell
	shell *exec.Cmd
}

var own = sync.OnceValue(func() *postgres { return &postgres{} })

const postgresScript = `"$@" >"$DIR/log" 2>&1 & p=$!
read -r end
kill -QUIT $p; wait $p
rm -rf "$DIR"`

func (p *postgres) start() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dsn != "" {
		return p.dsn, nil
	}
	bin, err := needs.PostgresFolder()
	if err != nil {
		return "", err
	}
	template, err := cluster(bin)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(template), "p") // the path of a socket must be short
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command("cp", "-a", template, data).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if err := give(dir); err != nil {
		return "", err
	}
	// The files of tests need not outlive the machine.
	args := as(filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=",
		"-c", "unix_socket_directories="+dir, "-c", "fsync=off", "-c", "synchronous_commit=off",
		"-c", "full_page_writes=off", "-c", "max_connections=200")
	p.shell = exec.Command("sh", append([]string{"-c", postgresScript, "sh"}, args...)...)
	p.shell.Env = append(os.Environ(), "DIR="+dir)
	p.shell.Dir = "/"
	if p.input, err = p.shell.StdinPipe(); err != nil {
		return "", err
	}
	if err := p.shell.Start(); err != nil {
		return "", err
	}
	p.dsn = "postgres:///postgres?host=" + dir + "&user=junction"
	if err := ready(p.dsn); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // it explains the error, if it is there
		return "", fmt.Errorf("%w\n%s", err, log)
	}
	return p.dsn, nil
}

func (p *postgres) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shell != nil {
		p.input.Close()
		p.shell.Wait() // the status is rm's
		p.shell, p.dsn = nil, ""
	}
}

// ready waits until Postgres accepts connections.
func ready(dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// cluster returns the folder of an empty cluster, which is made once for a machine.
func cluster(bin string) (template string, err error) {
	sum := sha256.Sum256([]byte(bin))
	dir := filepath.Join(short, fmt.Sprintf("junction-pg-%d-%s", os.Getuid(), hex.EncodeToString(sum[:4])))
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	template = filepath.Join(dir, "template")
	if _, err := os.Stat(template); !errors.Is(err, os.ErrNotExist) {
		return template, err
	}
	fresh := filepath.Join(dir, "new")
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700), give(fresh)); err != nil {
		return "", err
	}
	args := as(filepath.Join(bin, "initdb"), "--pgdata="+fresh, "--auth=trust", "--username=junction",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/" // which every user may enter
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return template, os.Rename(fresh, template)
}

// short is the system's folder for temporary files, also where TMPDIR is another one.
const short = "/tmp"

// as returns a command as the user who may run Postgres: it refuses root.
func as(command ...string) []string {
	if os.Getuid() != 0 {
		return command
	}
	return append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"}, command...)
}

// give gives a folder to the user who runs Postgres.
func give(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	if out, err := exec.Command("chown", "postgres:", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
