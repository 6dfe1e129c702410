package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
)

// What it may take to refuse a file, whatever is in it.
const (
	mostTime   = 2 * time.Second // of processors
	mostMemory = 200 << 20       // bytes resident
)

// aliases is a YAML mapping whose last member stands for 9 to the power of 9
// values.
func aliases(indent string) string {
	var b strings.Builder
	inner := "x"
	for name := 'a'; name <= 'i'; name++ {
		fmt.Fprintf(&b, "%s%c: &%c [%s]\n", indent, name, name, strings.TrimSuffix(strings.Repeat(inner+",", 9), ","))
		inner = "*" + string(name)
	}
	return b.String()
}

// nestedTypes is a schema of a type that stands for 4 to the power of 14 others.
func nestedTypes() string {
	b := strings.Builder{}
	b.WriteString("type A0 = Long;\n")
	for i := 1; i <= 14; i++ {
		fmt.Fprintf(&b, "type A%d = {a: A%d, b: A%d, c: A%d, d: A%d};\n", i, i-1, i-1, i-1, i-1)
	}
	return b.String() + "entity user {a: A14};\n"
}

// wideActions is a schema whose actions have a large context each.
func wideActions() string {
	b := strings.Builder{}
	b.WriteString("entity user;\ntype C = {")
	for i := range 2000 {
		fmt.Fprintf(&b, "m%d: Long,", i)
	}
	b.WriteString("};\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "action a%d appliesTo {principal: user, resource: user, context: C};\n", i)
	}
	return b.String()
}

// names lists E0, E1 and so on.
func names(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("E%d", i)
	}
	return strings.Join(all, ",")
}

// wideParents is a schema in which each of many types is in each of them.
func wideParents() string { return "entity " + names(2000) + " in [" + names(2000) + "];\n" }

// longParents is a schema in which each of many types is in the next.
func longParents() string {
	b := strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(&b, "entity E%d in [E%d];\n", i, i+1)
	}
	return b.String() + "entity E2000;\n"
}

// wideSubjects is a schema of which each action is for each of many types.
func wideSubjects() string {
	return "entity " + names(2000) + ";\naction " + strings.ReplaceAll(names(2000), "E", "a") + " appliesTo {principal: [" + names(2000) + "], resource: [" + names(2000) + "]};\n"
}

// chains are entities of which each is in the next, so many in a row.
func chains(n, long int) string {
	b := strings.Builder{}
	for chain := range n {
		for i := range long {
			fmt.Fprintf(&b, `,{"uid":{"type":"E","id":"%d-%d"},"attrs":{},"parents":[{"type":"E","id":"%d-%d"}]}`+"\n", chain, i, chain, i+1)
		}
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]\n"
}

func unknownKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	return b.String()
}

func manyValues() string { return "a: [" + strings.Repeat("1,", 500_000) + "1]\n" }

// A file that is small and stands for much, or is large and says nothing, is
// refused soon and with little memory, at its place, by whichever program reads
// it.
func TestBombs(t *testing.T) {
	gateway, service := shipped(t, "mcp-gateway"), shipped(t, "policy-service")
	for name, tt := range map[string]struct {
		file, text string
		command    []string
		want       string
	}{
		"aliases":       {"tenants/evil/config.yaml", "approval_templates:\n  t:\n    display:\n" + aliases("      "), []string{service, "validate"}, "tenants/evil/config.yaml:9:13: this stands for more than 100000 values"},
		"nested types":  {"tenants/evil/schema.cedarschema", nestedTypes(), []string{service, "validate"}, "tenants/evil/schema.cedarschema:11:1: with type A10 the schema stands for more than 200000 types"},
		"wide actions":  {"schema.cedarschema", wideActions(), []string{service, "validate"}, "schema.cedarschema:1090:1: with action a1087 the schema stands for more than 200000 types"},
		"wide parents":  {"tenants/evil/schema.cedarschema", wideParents(), []string{service, "validate"}, "tenants/evil/schema.cedarschema: with entity E1087 the schema stands for more than 200000 types"},
		"long parents":  {"tenants/evil/schema.cedarschema", longParents(), []string{service, "validate"}, "the schema stands for more than 200000 types"},
		"wide subjects": {"tenants/evil/schema.cedarschema", wideSubjects(), []string{service, "validate"}, "the schema stands for more than 200000 types"},
		"pairs":         {"tenants/evil/schema.cedarschema", "entity " + names(1500) + ";\naction a appliesTo {principal: [" + names(1500) + "], resource: [" + names(1500) + "]};\n", []string{service, "validate"}, "tenants/evil/schema.cedarschema:2:1: with action a the schema stands for more than 200000 types"},
		"groups":        {"tenants/evil/schema.cedarschema", "action " + strings.ReplaceAll(names(2000), "E", "b") + ";\naction " + names(2000) + " in [" + strings.ReplaceAll(names(2000), "E", "b") + "];\n", []string{service, "validate"}, "the schema stands for more than 200000 types"},
		"chains":        {"tenants/evil/entities.json", chains(20, 1000), []string{service, "validate"}, "the entities have more than 1200000 ancestors in all"},
		"a long chain":  {"tenants/evil/entities.json", chains(1, 20_000), []string{service, "validate"}, "has more than 1000 ancestors"},
		"unknown keys":  {"tenants/evil/config.yaml", unknownKeys(100_000), []string{service, "validate"}, "tenants/evil/config.yaml: a mapping has more than 10000 keys"},
		"fewer keys":    {"config.yaml", unknownKeys(9_999), []string{service, "validate"}, "config.yaml: there are more faults than these"},
		"many values":   {"config.yaml", manyValues(), []string{service, "validate"}, "config.yaml: the text has more than 150000"},
		"tests":         {"tests/a.yaml", "tests:\n- name: a\n  request:\n    context:\n" + aliases("      "), []string{service, "test"}, "tests/a.yaml:10:13: this stands for more than 100000 values"},
		"configuration": {"pdp.yaml", "auth:\n" + aliases("  "), []string{service, "serve", "--config"}, "pdp.yaml:7:9: this stands for more than 100000 values"},
		"its keys":      {"pdp.yaml", unknownKeys(100_000), []string{service, "config", "show", "--config"}, "pdp.yaml: a mapping has more than 10000 keys"},
		"gateway":       {"gateway.yaml", "servers:\n" + aliases("  "), []string{gateway, "check", "--config"}, "gateway.yaml:7:9: this stands for more than 100000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			put(t, filepath.Join(store, "a.cedar"), "@id(\"a\") permit (principal, action, resource);\n")
			put(t, filepath.Join(store, tt.file), tt.text)
			at := store
			if last := tt.command[len(tt.command)-1]; last == "--config" {
				at = filepath.Join(store, tt.file)
			}
			took := costOf(t, append(tt.command, at)...)
			t.Logf("%d bytes: %v, %d MiB", len(tt.text), took.Time, took.Memory>>20)
			if took.Success || !strings.Contains(took.Said, tt.want) {
				t.Errorf("not refused with %q: %s", tt.want, abridged(took.Said))
			}
			if took.Time > mostTime || took.Memory > mostMemory {
				t.Errorf("it took %v and %d MiB", took.Time, took.Memory>>20)
			}
		})
	}
}

func abridged(text string) string { return text[:min(len(text), 500)] }

// A cost is what a program took until it ended.
type cost struct {
	Time    time.Duration
	Memory  int64
	Success bool
	Said    string // on standard error
}

const measureVariable = "CONFORMANCE_MEASURE"

// costOf runs a program to its end by way of another process of these tests:
// Linux counts with a program's memory what the process had that began it.
func costOf(t *testing.T, command ...string) (c cost) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	between := exec.Command(self, command...)
	between.Env = append(os.Environ(), measureVariable+"=1")
	out, err := between.Output()
	must(t, err)
	must(t, json.Unmarshal(out, &c))
	return c
}

// measureInstead is what such a process does instead of tests.
func measureInstead() bool {
	if os.Getenv(measureVariable) == "" {
		return false
	}
	var said strings.Builder
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stderr = &said
	giveUp := time.AfterFunc(process.Patience, func() { _ = command.Process.Kill() })
	defer giveUp.Stop()
	_ = command.Run() // whether it succeeded is what is asked
	usage := command.ProcessState.SysUsage().(*syscall.Rusage)
	_ = json.NewEncoder(os.Stdout).Encode(cost{
		Time:    command.ProcessState.UserTime() + command.ProcessState.SystemTime(),
		Memory:  usage.Maxrss << 10,
		Success: command.ProcessState.Success(),
		Said:    said.String(),
	})
	return true
}
