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

// An Archive holds the files that decisions depend on, by slash-separated path from the root of the
// policy store. Package decisionlog stores it and defines its canonical form and its revision.
type Archive map[string][]byte

// The relevant files of a policy store, in its root and in each tenant's folder. Every *.cedar file
// in these folders and below holds policies, except those of [outsidePolicies].
const (
	FileCedarSchema = "schema.cedarschema"
	FileJSONSchema  = "schema.json"
	FileEntities    = "entities.json"
	FileConfig      = "config.yaml"
	policySuffix    = ".cedar"
	accessSuffix    = ".json"

	tenantsFolder = "tenants"
	testsFolder   = "tests"
	accessFolder  = "access" // of access documents
)

// KeptFiles lists the names of the relevant files that hold no policies.
func KeptFiles() []string { return []string{FileCedarSchema, FileJSONSchema, FileEntities, FileConfig} }

// Counts reports whether decisions depend on a file of a policy store, given its path from the root.
// An Archive holds exactly these files. Hidden files and files in hidden folders do not count.
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
	return accessName(parts) != "" || path.Ext(file) == policySuffix && !outsidePolicies(parts[:len(parts)-1])
}

// accessName returns the name of the access document at a path from the root or from a tenant's folder,
// or "".
func accessName(parts []string) string {
	if len(parts) != 2 || parts[0] != accessFolder || slices.Contains(KeptFiles(), parts[1]) {
		return ""
	}
	name, found := strings.CutSuffix(parts[1], accessSuffix)
	if !found || len(name) > 128 || strings.HasPrefix(name, ".") || strings.Trim(name, accessCharacters) != "" {
		return ""
	}
	return name
}

// accessCharacters are the characters in the names of access documents, which are parts of policies' ids.
const accessCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// IsAccess reports whether a file of an archive is an access document.
func IsAccess(name string) bool {
	return Counts(name) && path.Ext(name) == accessSuffix && path.Base(path.Dir(name)) == accessFolder
}

// AccessFiles lists the archive's access documents, the root's first.
func (a Archive) AccessFiles() []string { return a.filesWhere(IsAccess) }

// outsidePolicies reports whether the folders of a file, from the root or a tenant's folder on,
// exclude it from the policies. These are folders of tests, folders of other data, and folders that
// could be mistaken for tenants'.
func outsidePolicies(folders []string) bool {
	if len(folders) > 0 && (folders[0] == accessFolder || folders[0] == "entities") {
		return true
	}
	return slices.ContainsFunc(folders, func(name string) bool {
		name = strings.ToLower(name)
		return name == "test" || name == testsFolder || name == "tenant" || name == tenantsFolder
	})
}

// ValidTenant reports whether name is a valid tenant name.
func ValidTenant(name string) bool { return authzen.ValidTenant(name) }

// ValidPath reports whether name is a valid path for a file of an archive in the decision log.
func ValidPath(name string) bool { return decisionlog.ValidPath(name) }

// TenantAt returns the tenant whose folder is or contains name, or "".
func TenantAt(name string) string {
	below, found := strings.CutPrefix(name, tenantsFolder+"/")
	if tenant, _, _ := strings.Cut(below, "/"); found && ValidTenant(tenant) {
		return tenant
	}
	return ""
}

// TenantOf returns the tenant that owns the file, or "" for a file of the root.
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

// ForTenant returns the files that a tenant's decisions depend on: the root's and its own.
func (a Archive) ForTenant(tenant string) Archive {
	own := Archive{}
	for file, text := range a {
		if t := TenantOf(file); t == "" || t == tenant {
			own[file] = text
		}
	}
	return own
}

// withTenant returns the root of the archive with a tenant's files from another archive.
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

// Lost returns the schema or the settings that a later archive lacks in either form, although it
// has other files of that folder. It returns "" if nothing is lost.
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

// hasEntities reports whether the entities file of a tenant, or of the root for "", lists any
// entity. The file must have compiled.
func (a Archive) hasEntities(tenant string) bool {
	file := FileEntities
	if tenant != "" {
		file = path.Join(tenantsFolder, tenant, FileEntities)
	}
	return len(bytes.Trim(a[file], "[] \t\r\n")) > 0
}

// has reports whether the archive has a file in a folder or below.
func (a Archive) has(folder string) bool {
	for file := range a {
		if strings.HasPrefix(file, folder) {
			return true
		}
	}
	return false
}

// Files lists the archive's files with that base name, the root's first.
func (a Archive) Files(base string) []string {
	return a.filesWhere(func(file string) bool { return path.Base(file) == base })
}

// PolicyFiles lists the archive's policy files, the root's first.
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

// RevisionOf returns the revision of an archive, compiled or not.
func RevisionOf(a Archive) (string, error) {
	manifest, err := decisionlog.Manifest(a)
	return decisionlog.Revision(manifest), err
}
