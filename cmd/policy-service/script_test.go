package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/policy-service/policy-service/schemas/authzen"
)

var update = flag.Bool("update", false, "write the wanted output of testdata/script/*.txtar")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"policy-service": main,
		"request":        request,
		"tamper":         tamper,
		"hasty-stream":   hastyStream,
		"approval":       requestApproval,
		"task":           aboutTask,
		"revoke":         revokeApproval,
	})
}

// hurry keeps programs with a race detector from waiting a second at their
// end.
const hurry = "atexit_sleep_ms=0"

// TestScripts runs the scripts of testdata/script, which drive the program as
// a shell would. They have these commands beside those of testscript:
//
//	up [NAME=VALUE …] [flags]   run serve in the background, with these
//	                            variables and flags; sets MAIN and ADMIN
//	down [N]                    end it, with exit code N; what it wrote to
//	                            standard error is stderr
//	ended N                     the same, for one that ends by itself
//	code N program …            run a program that ends with exit code N
//	capture NAME REGEXP         set NAME to the submatch in stdout
//	isjson FILE                 FILE, or stdout, is one strict JSON value
//	exec request METHOD URL [FILE]
//	                            send what is in FILE, with $NAME filled in, and
//	                            print status and body of the answer; PREFER
//	                            and POLICY_SERVICE_API_KEY are headers of it
//	exec approval URL FILE      ask to authorize, and for the approval that the
//	                            answer requires; prints the task
//	exec task FILE VERB …       policy-service approvals VERB about that task
//	exec revoke FILE …          policy-service approvals revoke what came of it
//	exec tamper FILE OLD NEW    change bytes in place, wherever they are
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(10 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", hurry)
			env.Values[serverKey{}] = &server{variables: env.Vars}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"up":      up,
			"down":    func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).end(ts, args, syscall.SIGTERM) },
			"ended":   func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).end(ts, args, nil) },
			"code":    code,
			"capture": capture,
			"isjson":  isJSON,
		},
	})
}

// A server is the one that a script has started.
type server struct {
	variables []string
	command   *exec.Cmd
	stderr    bytes.Buffer  // whole when ended is closed
	ended     chan struct{} // closed when the server has closed its standard error
}

type serverKey struct{}

func serverOf(ts *testscript.TestScript) *server { return ts.Value(serverKey{}).(*server) }

var variable = regexp.MustCompile(`^[A-Z_]+=`)

func up(ts *testscript.TestScript, _ bool, args []string) {
	s := serverOf(ts)
	variables := s.variables
	for len(args) > 0 && variable.MatchString(args[0]) {
		variables, args = append(variables, args[0]), args[1:]
	}
	program, err := exec.LookPath("policy-service")
	ts.Check(err)
	*s = server{variables: s.variables, ended: make(chan struct{})}
	s.command = exec.Command(program, append([]string{"serve"}, args...)...)
	s.command.Dir, s.command.Env = ts.MkAbs("."), variables
	stderr, err := s.command.StderrPipe()
	ts.Check(err)
	ts.Check(s.command.Start())
	started := s.command
	ts.Defer(func() { _ = started.Process.Kill() }) // it has ended, but where the script fails
	ready := make(chan []string, 1)
	go s.read(stderr, ready)
	select {
	case urls := <-ready:
		ts.Setenv("MAIN", urls[1])
		ts.Setenv("ADMIN", urls[2])
	case <-s.ended:
		ts.Fatalf("serve has ended:\n%s", &s.stderr)
	case <-time.After(time.Minute):
		ts.Fatalf("serve does not say that it listens")
	}
}

var listening = regexp.MustCompile(`^listening on (\S+) \(admin (\S+)\)\n$`)

// read keeps what the server writes, and tells its URLs once it has them.
func (s *server) read(stderr io.Reader, ready chan<- []string) {
	defer close(s.ended)
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		s.stderr.WriteString(line)
		if urls := listening.FindStringSubmatch(line); urls != nil {
			ready <- urls
		}
		if err != nil {
			return
		}
	}
}

// end waits until the server has ended, after the signal if there is one.
func (s *server) end(ts *testscript.TestScript, args []string, signal os.Signal) {
	want := 0
	if len(args) > 0 {
		var err error
		want, err = strconv.Atoi(args[0])
		ts.Check(err)
	}
	if signal != nil {
		ts.Check(s.command.Process.Signal(signal))
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		ts.Fatalf("serve does not end")
	}
	_ = s.command.Wait() // the exit code says it
	fmt.Fprint(ts.Stderr(), &s.stderr)
	if got := s.command.ProcessState.ExitCode(); got != want {
		ts.Fatalf("serve has ended with exit code %d, not %d:\n%s", got, want, &s.stderr)
	}
}

func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	got := 0
	if errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no match for %s in stdout", args[1])
	}
	ts.Setenv(args[0], found[1])
}

func isJSON(ts *testscript.TestScript, _ bool, args []string) {
	if text := jsontext.Value(ts.ReadFile(args[0])); !text.IsValid() {
		ts.Fatalf("%s is not JSON: %s", args[0], text)
	}
}

// request is a program that sends a request and prints the answer.
func request() {
	var body io.Reader
	if len(os.Args) > 3 {
		text, err := os.ReadFile(os.Args[3])
		check(err)
		body = strings.NewReader(os.ExpandEnv(string(text)))
	}
	request, err := http.NewRequest(os.Args[1], os.Args[2], body)
	check(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Prefer", os.Getenv("PREFER"))
	if key := os.Getenv(apiKeyVariable); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	check(err)
	fmt.Println(response.Status)
	_, err = io.Copy(os.Stdout, response.Body)
	check(err)
	fmt.Println()
}

// requestApproval is a program that is a tool gateway whose call has to wait.
func requestApproval() {
	call, err := os.ReadFile(os.Args[2])
	check(err)
	var answer struct {
		Approval jsontext.Value `json:"approval"`
	}
	send(os.Args[1]+"/v1/authorize", call, &answer)
	var task authzen.TaskResponse
	send(os.Args[1]+"/v1/approvals", fmt.Appendf(nil, `{"request":%s,"approval":%s}`, call, answer.Approval), &task)
	fmt.Print(task.Task.ID)
}

func send(url string, body []byte, answer any) {
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	check(err)
	check(json.UnmarshalRead(response.Body, answer))
}

// aboutTask is a program that runs a verb of approvals on the task in a file.
func aboutTask() {
	id, err := os.ReadFile(os.Args[1])
	check(err)
	os.Exit(run(context.Background(), append([]string{"approvals", os.Args[2], string(id)}, os.Args[3:]...)))
}

// revokeApproval is a program that revokes what came of the task in a file.
func revokeApproval() {
	id, err := os.ReadFile(os.Args[1])
	check(err)
	shown, err := exec.Command("policy-service", append([]string{"approvals", "show", string(id), "--json"}, os.Args[2:4]...)...).Output()
	check(err)
	approval := regexp.MustCompile(`apr_[A-Z2-7]{26}`).Find(shown)
	os.Exit(run(context.Background(), append([]string{"approvals", "revoke", string(approval)}, os.Args[2:]...)))
}

// tamper is a program that replaces bytes of a file by as many others, wherever
// they are.
func tamper() {
	file, from, to := os.Args[1], []byte(os.Args[2]), []byte(os.Args[3])
	text, err := os.ReadFile(file)
	check(err)
	if len(from) != len(to) || !bytes.Contains(text, from) {
		check(fmt.Errorf("%s: cannot replace %q by %q", file, from, to))
	}
	check(os.WriteFile(file, bytes.ReplaceAll(text, from, to), 0o600))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestHelp holds that --help of a command names every flag and argument of it
// and says what each is for.
func TestHelp(t *testing.T) {
	for _, command := range newParser(t.Context()).Model.Leaves(true) {
		t.Run(command.FullPath(), func(t *testing.T) {
			help := output(t, append(strings.Fields(command.FullPath())[1:], "--help")...)
			for _, flag := range command.Flags {
				if !strings.Contains(help, "--"+flag.Name) || flag.Help == "" || !contains(help, flag.Help) {
					t.Errorf("--%s is not explained:\n%s", flag.Name, help)
				}
			}
			for _, argument := range command.Positional {
				if !strings.Contains(help, "<"+argument.Name+">") || !contains(help, argument.Help) {
					t.Errorf("%s is not explained:\n%s", argument.Name, help)
				}
			}
			if !contains(help, command.Help) {
				t.Errorf("the command is not explained:\n%s", help)
			}
		})
	}
}

// contains reports whether the words stand in a text that is broken into
// lines and has the environment variables behind them.
func contains(text, words string) bool {
	joined := strings.Join(strings.Fields(text), " ")
	return strings.Contains(joined, strings.TrimSuffix(words, "."))
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "policy-service", args...)
	command.Env = append(os.Environ(), "GORACE="+hurry)
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestEnvironmentIsFree holds that no variable which Kubernetes sets for a
// service of this name is one of the program's.
func TestEnvironmentIsFree(t *testing.T) {
	theirs := regexp.MustCompile(`^POLICY_SERVICE_(SERVICE_(HOST|PORT).*|PORT|PORT_.*)$`)
	err := kong.Visit(newParser(t.Context()).Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, name := range flag.Envs {
				if theirs.MatchString(name) {
					t.Errorf("--%s is set by %s", flag.Name, name)
				}
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Error(err)
	}
}
