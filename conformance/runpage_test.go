package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/process"
)

// The examples of these pages work when they are pasted, in their order: a block
// behind a line that names its file in backticks and ends with a colon is
// written to that file, and what a command prints begins with what stands below
// it.
func TestPagesRun(t *testing.T) {
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"../docs/migration.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			dir := t.TempDir()
			commands := 0
			for _, b := range blocks(read(t, page)) {
				switch {
				case b.file != "":
					place(t, filepath.Join(dir, b.file), b.text)
				case b.language == "console":
					commands += runBlock(t, dir, filepath.Dir(path), b.text)
				}
			}
			if commands == 0 {
				t.Error("no command was run")
			}
		})
	}
}

// A block is what stands between two fences.
type block struct {
	language, text string
	file           string // that the line before names; "" for none
}

var (
	fenced   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	namesOne = regexp.MustCompile("(?:^|\n)[^\n]*`([\\w./-]+)`:\n\n$")
)

func blocks(page string) (all []block) {
	for _, at := range fenced.FindAllStringSubmatchIndex(page, -1) {
		b := block{language: page[at[2]:at[3]], text: page[at[4]:at[5]]}
		if named := namesOne.FindStringSubmatch(page[:at[0]]); named != nil {
			b.file = named[1]
		}
		all = append(all, b)
	}
	return all
}

// runBlock runs the commands of a console block, and returns how many.
func runBlock(t *testing.T, dir, bin, text string) (n int) {
	t.Helper()
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		n++
		line, want, _ := strings.Cut(part, "\n")
		command := exec.CommandContext(t.Context(), "sh", "-c", line)
		command.Dir, command.Env = dir, append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, _ := command.CombinedOutput() // a denial has an exit code of its own
		if want = strings.TrimSpace(want); !strings.HasPrefix(string(out), want) {
			t.Errorf("%s (-page +output):\n%s", line, cmp.Diff(want, strings.TrimSpace(string(out))))
		}
	}
	return n
}
