package snapshot

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Archive is the text of a policy store: what decisions depend on, by
// slash-separated path from the store's root. Its canonical form and its
// revision are the decision log's (see package decisionlog), which keeps it.
type Archive map[string][]byte

// The files of a policy store that count, in its root and in the folder of each
// tenant. Every *.cedar file there and in the folders below holds policies, but
// for those of [outsidePolicies].
const (
	FileCedarSchema = "schema.cedarschema"
	FileJSONSchema  = "schema.json"
	FileEntities    = "entities.json"
	FileConfig      = "config.yaml"
	policySuffix    = ".cedar"

	tenantsFolder = "tenants"
	testsFolder   = "tests"
)

// KeptFiles lists the names of the files that count beside policies.
func KeptFiles() []string { return []string{FileCedarSchema, FileJSONSchema, FileEntities, FileConfig} }

// Counts reports whether a file of a policy store is one that decisions depend
// on, by its path from the root. An Archive holds these files and no others.
// A hidden file, or one in a hidden folder, is none of them.
func Counts(name string) bool {
	parts := strings.Split(name, "/")
	if slices.ContainsFunc(parts, func(part string) bool { return part == "" || part[0] == '.' }) {
		return false
	}
	if parts[0] == tenantsFolder {
		if TenantOf(name) == "" {
			return false
		}
		parts = parts[2:]
	}
	file := parts[len(parts)-1]
	if len(parts) == 1 && slices.Contains(KeptFiles(), file) {
		return true
	}
	return path.Ext(file) == policySuffix && !outsidePolicies(parts[:len(parts)-1])
}

// outsidePolicies reports whether the folders that lead to a file, from the root
// or a tenant's folder on, keep it from being one of policies: those of tests,
// those that hold other data, and those that could be taken for tenants'.
func outsidePolicies(folders []string) bool {
	if len(folders) > 0 && (folders[0] == "access" || folders[0] == "entities") {
		return true
	}
	return slices.ContainsFunc(folders, func(name string) bool {
		name = strings.ToLower(name)
		return name == "test" || name == testsFolder || name == "tenant" || name == tenantsFolder
	})
}

// ValidTenant reports whether name can be a tenant's.
func ValidTenant(name string) bool { return authzen.ValidTenant(name) }

// ValidPath reports whether name can be the path of a file of an archive, as the
// decision log keeps it.
func ValidPath(name string) bool { return decisionlog.ValidPath(name) }

// TenantAt returns the tenant whose folder name is, or is in; "" for none.
func TenantAt(name string) string {
	below, found := strings.CutPrefix(name, tenantsFolder+"/")
	if tenant, _, _ := strings.Cut(below, "/"); found && ValidTenant(tenant) {
		return tenant
	}
	return ""
}

// TenantOf returns the tenant whose file it is, or "" for a file of the root.
func TenantOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 3 || parts[0] != tenantsFolder || !ValidTenant(parts[1]) {
		return ""
	}
	return parts[1]
}

// Tenants lists the tenants that have a file in the archive.
func (a Archive) Tenants() []string {
	var names []string
	for file := range a {
		if tenant := TenantOf(file); tenant != "" && !slices.Contains(names, tenant) {
			names = append(names, tenant)
		}
	}
	slices.Sort(names)
	return names
}

// ForTenant returns the part of the archive that a tenant's decisions depend on: the
// files of the root and its own.
func (a Archive) ForTenant(tenant string) Archive {
	own := Archive{}
	for file, text := range a {
		if t := TenantOf(file); t == "" || t == tenant {
			own[file] = text
		}
	}
	return own
}

// withTenant returns the root of the archive with a tenant's files of another.
func (a Archive) withTenant(tenant string, other Archive) Archive {
	files := a.ForTenant("")
	for file, text := range other {
		if TenantOf(file) == tenant {
			files[file] = text
		}
	}
	return files
}

// sameRoot reports whether two archives have the same files in the root.
func (a Archive) sameRoot(other Archive) bool {
	return maps.EqualFunc(a.ForTenant(""), other.ForTenant(""), bytes.Equal)
}

// Lost returns the schema or the settings that a later archive does not have, in
// either form, although it has other files of that folder; "" for none.
func (a Archive) Lost(later Archive) string {
	for _, file := range slices.Sorted(maps.Keys(a)) {
		folder, base := path.Split(file)
		_, kept := later[file]
		switch {
		case kept:
		case base == FileConfig && later.has(folder):
			return file
		case base == FileCedarSchema && later[folder+FileJSONSchema] == nil && later.has(folder):
			return file
		case base == FileJSONSchema && later[folder+FileCedarSchema] == nil && later.has(folder):
			return file
		}
	}
	return ""
}

// hasEntities reports whether the entities file of a tenant, or of the root for "",
// has any. The file has been compiled.
func (a Archive) hasEntities(tenant string) bool {
	file := FileEntities
	if tenant != "" {
		file = path.Join(tenantsFolder, tenant, FileEntities)
	}
	return len(bytes.Trim(a[file], "[] \t\r\n")) > 0
}

// has reports whether the archive has a file in or below a folder.
func (a Archive) has(folder string) bool {
	for file := range a {
		if strings.HasPrefix(file, folder) {
			return true
		}
	}
	return false
}

// Files lists the archive's files with that base name, that of the root first.
func (a Archive) Files(base string) []string {
	return a.filesWhere(func(file string) bool { return path.Base(file) == base })
}

// PolicyFiles lists the archive's policy files, those of the root first.
func (a Archive) PolicyFiles() []string {
	return a.filesWhere(func(file string) bool { return path.Ext(file) == policySuffix })
}

func (a Archive) filesWhere(match func(string) bool) []string {
	var names []string
	for file := range a {
		if Counts(file) && match(file) {
			names = append(names, file)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if rootA, rootB := TenantOf(a) == "", TenantOf(b) == ""; rootA != rootB {
			if rootA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}
