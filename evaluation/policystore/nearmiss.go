package policystore

import (
	"path"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

const schemaSuffix = ".cedarschema"

// nearNames holds the names that a store reads, for comparison with near misses. ordinary lists common
// names that resemble one of them by chance.
var nearNames = struct{ folders, files, ordinary []string }{
	folders:  []string{testsDir, tenantsDir, "access", "entities"},
	files:    append(snapshot.KeptFiles(), manifestFile, signatureFile),
	ordinary: []string{"texts", "rests", "nests", ".js", ".jsx", ".ts", ".xml", ".toml", ".sql", ".jsonl", ".html"},
}

// isSlip reports whether one typing error makes name out of known: one edit, or two adjacent letters
// swapped.
func isSlip(name, known string) bool {
	return yamldoc.Nearest(name, []string{known}, 1) != "" || isSwapped(name, known)
}

// isSwapped reports whether name is known with two adjacent letters swapped.
func isSwapped(name, known string) bool {
	if len(name) != len(known) {
		return false
	}
	for i := range len(name) - 1 {
		if name[i] != known[i] {
			return name[i] == known[i+1] && name[i+1] == known[i] && name[i+2:] == known[i+2:]
		}
	}
	return false
}

// nearSuffix returns the suffix that a lowercase extension equals or misspells, or "". The longer suffix
// may be two edits away. It skips extensions with non-letters, which editors use for backups, and short ones with other uses,
// such as .cer.
func nearSuffix(extension string) string {
	extension = strings.TrimSpace(extension)
	switch {
	case strings.Trim(extension, ".abcdefghijklmnopqrstuvwxyz") != "" || len(extension) < len(".ceda"):
		return ""
	case yamldoc.Nearest(extension, []string{schemaSuffix}, 2) != "":
		return schemaSuffix
	case isSlip(extension, policySuffix), strings.HasPrefix(extension, policySuffix):
		return policySuffix
	}
	return ""
}

// nearFile returns the known file at most two edits from a lowercase name, or "".
func nearFile(fold string) string {
	fold = strings.TrimSpace(fold)
	if extension := path.Ext(fold); strings.Trim(extension, ".abcdefghijklmnopqrstuvwxyz") != "" || slices.Contains(nearNames.ordinary, extension) {
		return ""
	}
	return yamldoc.Nearest(fold, nearNames.files, 2)
}

// nearFolder returns the known folder that a lowercase name misspells by one typing error, or "". Two
// edits would match entries/ and text/. A number behind tests is no error: such a folder has policies.
func nearFolder(fold string) string {
	fold = strings.TrimSpace(fold)
	switch {
	case slices.Contains(nearNames.ordinary, fold) || fold != testsDir && strings.TrimRight(fold, "0123456789") == testsDir:
		return ""
	case isSwapped(fold, "test"):
		return testsDir
	}
	for _, known := range nearNames.folders {
		if isSlip(fold, known) {
			return known
		}
	}
	return ""
}
