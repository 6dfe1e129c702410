package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Archive is the text of a policy store: what decisions depend on, by
// slash-separated path from the store's root. Its canonical form and its
// revision are the decision log's (see package decisionlog), which keeps it.
type Archive map[string][]byte

// The files of a policy store that count, in its root and in the folder of
// each tenant. Every *.cedar file there holds policies.
const (
	fileCedarSchema = "schema.cedarschema"
	fileJSONSchema  = "schema.json"
	fileEntities    = "entities.json"
	fileConfig      = "config.yaml"

	tenantsFolder = "tenants"
)

// Counts reports whether a file of a policy store is one that decisions depend
// on, by its path from the root. An Archive holds these files and no others.
// A hidden file is none of them.
func Counts(name string) bool {
	folder, file := path.Split(name)
	if folder != "" && tenantOf(name) == "" || strings.HasPrefix(file, ".") {
		return false
	}
	switch file {
	case fileCedarSchema, fileJSONSchema, fileEntities, fileConfig:
		return true
	}
	return path.Ext(file) == ".cedar"
}

// ValidTenant reports whether name can be a tenant's.
func ValidTenant(name string) bool { return authzen.ValidTenant(name) }

// tenantOf returns the tenant whose file it is, or "" for a file of the root.
func tenantOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != tenantsFolder || !ValidTenant(parts[1]) {
		return ""
	}
	return parts[1]
}

// tenants lists the tenants that have a file in the archive.
func (a Archive) tenants() []string {
	var names []string
	for file := range a {
		if tenant := tenantOf(file); tenant != "" && !slices.Contains(names, tenant) {
			names = append(names, tenant)
		}
	}
	slices.Sort(names)
	return names
}

// of returns the part of the archive that a tenant's decisions depend on: the
// files of the root and its own.
func (a Archive) of(tenant string) Archive {
	own := Archive{}
	for file, text := range a {
		if t := tenantOf(file); t == "" || t == tenant {
			own[file] = text
		}
	}
	return own
}

// files lists the archive's files with that base name, that of the root first.
func (a Archive) files(base string) []string {
	return a.filesWhere(func(file string) bool { return path.Base(file) == base })
}

// policyFiles lists the archive's policy files, those of the root first.
func (a Archive) policyFiles() []string {
	return a.filesWhere(func(file string) bool { return path.Ext(file) == ".cedar" })
}

func (a Archive) filesWhere(match func(string) bool) []string {
	var names []string
	for file := range a {
		if Counts(file) && match(file) {
			names = append(names, file)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if rootA, rootB := tenantOf(a) == "", tenantOf(b) == ""; rootA != rootB {
			if rootA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}
