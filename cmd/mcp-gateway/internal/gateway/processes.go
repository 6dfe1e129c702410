package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/process"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/filereload"
)

// A commandConfig says how serve runs a server that speaks on standard input and
// output.
type commandConfig struct {
	Command []string `yaml:"command" list:"some"`
	Args    []string `yaml:"args"` // after those of Command
	Dir     string   `yaml:"dir"`
	// Env names variables of the gateway that the server gets, beside those of
	// [commonEnv]. EnvFiles has files with values of others, by name.
	Env       []string          `yaml:"env"`
	EnvFiles  map[string]string `yaml:"env_files"`
	Processes processesConfig   `yaml:"processes"`
}

type processesConfig struct {
	Per  processesPer `yaml:"per"`  // "" is caller
	Idle duration     `yaml:"idle"` // 0 is 10 minutes
	Max  int          `yaml:"max"`  // 0 is 20
	// Memory bounds that of a process with what it has started, in bytes. 0 is no bound.
	Memory int64 `yaml:"memory"`
}

// minMemory is the smallest bound of memory, in bytes: no program is content with less.
const minMemory = 16 << 20

// A processesPer says who shares a process.
type processesPer string

const (
	perCaller processesPer = "caller"
	perAll    processesPer = "shared"
)

const (
	defaultIdle         = 10 * time.Minute
	defaultMaxProcesses = 20
)

// commonEnv names the variables that every server gets: programs do not start without
// them.
var commonEnv = []string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "SystemRoot"}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check reports what is wrong with the command of a server at a path.
func (c *commandConfig) check(f *faults, url, at string) {
	if len(c.Command) == 0 {
		unused := len(c.Args) > 0 || c.Dir != "" || len(c.Env) > 0 || len(c.EnvFiles) > 0 || c.Processes != (processesConfig{})
		f.needs(!unused, at+".command", at, "the program and its arguments, for args, dir, env, env_files and processes")
		return
	}
	if url != "" {
		f.fault(at+".command", "must not stand beside url: a server is run, or reached")
	}
	if c.Processes.Per != "" && c.Processes.Per != perCaller && c.Processes.Per != perAll {
		f.fault(at+".processes.per", "must be %s or %s, not %q", perCaller, perAll, c.Processes.Per)
	}
	if c.Processes.Idle != 0 && c.Processes.Idle < time.Second {
		f.fault(at+".processes.idle", "must be at least 1s, not %s", c.Processes.Idle)
	}
	if c.Processes.Max < 0 {
		f.fault(at+".processes.max", "must be a whole number from 1, not %d", c.Processes.Max)
	}
	if c.Processes.Memory != 0 && c.Processes.Memory < minMemory {
		f.fault(at+".processes.memory", "must be at least %d bytes, not %d", minMemory, c.Processes.Memory)
	}
	if c.Processes.Memory != 0 && !process.MeasuresMemory {
		f.fault(at+".processes.memory", "needs Linux: this system does not tell the memory of processes")
	}
	for _, name := range c.Env {
		c.checkVariable(f, at+".env", name)
	}
	for name, file := range c.EnvFiles {
		c.checkVariable(f, at+".env_files."+name, name)
		f.must(file != "", at+".env_files."+name, "", "the file of the variable's value")
	}
}

func (c *commandConfig) checkVariable(f *faults, at, name string) {
	switch {
	case !variableName.MatchString(name):
		f.fault(at, "must be the name of a variable, not %q", name)
	case strings.HasPrefix(name, "MCP_GATEWAY_"):
		f.fault(at, "%s is for the gateway alone", name)
	}
}

// checkFiles reports a program, a directory and files that cannot be used.
func (c *commandConfig) checkFiles(f *faults, at string) {
	if len(c.Command) == 0 {
		return
	}
	found := exec.Command(c.Command[0])
	if found.Dir = c.Dir; found.Err != nil && !errors.Is(found.Err, exec.ErrDot) {
		f.fault(at+".command", "cannot be run: %v", found.Err)
	} else if info, err := os.Stat(found.Path); c.Dir == "" && (err != nil || info.IsDir()) {
		f.fault(at+".command", "cannot be run: %s is no program", found.Path)
	}
	if info, err := os.Stat(c.Dir); c.Dir != "" && (err != nil || !info.IsDir()) {
		f.fault(at+".dir", "must be a directory, not %q", c.Dir)
	}
	for name, file := range c.EnvFiles {
		if _, err := readSecret(file); err != nil {
			f.fault(at+".env_files."+name, "cannot be used: %v", err)
		}
	}
}

// pool returns what runs the server.
func (s *serverConfig) pool(maxReply int64, log *slog.Logger) (*process.Pool, error) {
	secrets := make(map[string]*filereload.Value[string])
	for name, file := range s.Run.EnvFiles {
		value, err := openSecret("env_files of "+s.Name, file, log)
		if err != nil {
			return nil, fmt.Errorf("servers: %s: %s: %w", s.Name, name, err)
		}
		secrets[name] = value
	}
	return process.New(process.Config{
		Server: s.Name, Command: append(append([]string(nil), s.Run.Command...), s.Run.Args...), Dir: s.Run.Dir, Shared: s.Run.Processes.Per == perAll,
		Idle: cmp.Or(s.Run.Processes.Idle, defaultIdle), Max: cmp.Or(s.Run.Processes.Max, defaultMaxProcesses), MaxReply: maxReply, Memory: s.Run.Processes.Memory, Log: log,
		Env: func() (all []string) {
			for _, name := range append(append([]string(nil), commonEnv...), s.Run.Env...) {
				if value, set := os.LookupEnv(name); set {
					all = append(all, name+"="+value)
				}
			}
			for name, value := range secrets {
				all = append(all, name+"="+value.Get())
			}
			return all
		},
	}), nil
}

// processTransport returns the transport to the processes of a caller.
func processTransport(pool *process.Pool) func(*enforce.Caller) http.RoundTripper {
	return func(c *enforce.Caller) http.RoundTripper {
		return refusing{pool.Transport(process.Owner{Tenant: c.Tenant, Type: c.Subject.Type, ID: c.Subject.ID})}
	}
}

// refusing refuses the requests that reach no process, and tells which processes the
// gateway has ended.
type refusing struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	var not *process.UnavailableError
	switch {
	case errors.As(err, &not):
		return nil, &enforce.Refusal{Code: wire.CodeInternal, Status: http.StatusOK, Message: not.Error(), Data: enforce.Data{Reason: enforce.ReasonUnavailable}}
	case err != nil:
		return nil, endedError(err)
	}
	response.Body = endedBody{response.Body}
	return response, nil
}

// endedError returns the error with which a request ends.
func endedError(err error) error {
	if ended := new(process.EndedError); errors.As(err, &ended) {
		return &proxy.EndedError{Reason: ended.Error()}
	}
	return err
}

// An endedBody is the answer of a process that may end.
type endedBody struct{ io.ReadCloser }

// Read implements [io.Reader].
func (b endedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, endedError(err)
}
