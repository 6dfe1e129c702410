package evaluation

import (
	"path"
	"slices"
	"strings"
)

// An Archive is the text of a policy store: what a decision depends on, by
// slash-separated path from the store's root. Its canonical form and its
// revision are the decision log's (see package decisionlog), which keeps it.
type Archive map[string][]byte

// The files of a policy store that count. Every *.cedar file of the root
// holds policies.
const (
	fileCedarSchema = "schema.cedarschema"
	fileJSONSchema  = "schema.json"
	fileEntities    = "entities.json"
	fileConfig      = "config.yaml"
)

// Counts reports whether a file of a policy store is one that decisions depend
// on, by its path from the root. An Archive holds these files and no others.
func Counts(name string) bool {
	switch name {
	case fileCedarSchema, fileJSONSchema, fileEntities, fileConfig:
		return true
	}
	return isPolicyFile(name)
}

func isPolicyFile(name string) bool {
	return path.Ext(name) == ".cedar" && !strings.Contains(name, "/")
}

// policyFiles lists the archive's policy files in order of their names.
func (a Archive) policyFiles() []string {
	var names []string
	for name := range a {
		if isPolicyFile(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
