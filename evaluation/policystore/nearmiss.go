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
var nearNames = struct{ suffixes, folders, files, ordinary []string }{
	suffixes: []string{policySuffix, schemaSuffix},
	folders:  []string{testsDir, tenantsDir, "access", "entities"},
	files:    append(snapshot.KeptFiles(), manifestFile, signatureFile),
	ordinary: []string{"texts", "rests", "nests", ".js", ".jsx", ".ts", ".xml", ".toml", ".sql"},
}

// nearSuffix returns the suffix that equals a lowercase extension or is at most two edits from it, or "".
// It skips extensions with non-letters, which editors use for backups, and short ones with other uses,
// such as .cer.
func nearSuffix(extension string) string {
	extension = strings.TrimSpace(extension)
	switch {
	case strings.Trim(extension, ".abcdefghijklmnopqrstuvwxyz") != "" || len(extension) < len(".ceda"):
		return ""
	case yamldoc.Nearest(extension, nearNames.suffixes, 2) != "":
		return yamldoc.Nearest(extension, nearNames.suffixes, 2)
	case strings.HasPrefix(extension, policySuffix):
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

// nearFolder returns the known folder one edit from a lowercase name, or "". Two edits would match
// entries/ and text/.
func nearFolder(fold string) string {
	fold = strings.TrimSpace(fold)
	if slices.Contains(nearNames.ordinary, fold) {
		return ""
	}
	return yamldoc.Nearest(fold, nearNames.folders, 1)
}
