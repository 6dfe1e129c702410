package conformance_test

import (
	"debug/buildinfo"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/process"
)

// The program that tests drive has the race detector where they say so, and make check
// has them all say so.
func TestProgramHasTheRaceDetector(t *testing.T) {
	path, err := process.Program()
	must(t, err)
	info, err := buildinfo.ReadFile(path)
	must(t, err)
	has := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
	if has != process.Race() {
		t.Errorf("the race detector is in the program: %t, and should be: %t", has, process.Race())
	}
	_, check, _ := strings.Cut(read(t, "../Makefile"), "\ncheck:\n")
	check, _, _ = strings.Cut(check, "\n\n")
	tests := regexp.MustCompile(`(?m)^.* go test .*$`).FindAllString(check, -1)
	if len(tests) == 0 {
		t.Error("make check runs no tests")
	}
	for _, command := range tests {
		if !strings.Contains(command, " -race ") && !strings.Contains(command, " PROGRAM_RACE=1 ") {
			t.Errorf("no race detector: %s", command)
		}
	}
}
