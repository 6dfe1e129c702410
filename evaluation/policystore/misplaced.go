package policystore

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A file that looks relevant but is not read would have no effect: a forbid in it would not forbid
// anything. So it is a fault.

const (
	testsDir     = "tests"
	accessDir    = "access"
	policySuffix = ".cedar"
)

// A location is the position of a name in a store: its path from the root or from its tenant's folder.
type location struct {
	tenant string // "" for the root
	parts  []string
}

func locate(name string) location {
	parts := strings.Split(name, "/")
	if parts[0] == tenantsDir && len(parts) > 2 {
		return location{tenant: parts[1], parts: parts[2:]}
	}
	return location{parts: parts}
}

func (l location) base() string { return l.parts[len(l.parts)-1] }
func (l location) top() bool    { return len(l.parts) == 1 }

// skipped reports whether a folder is not searched.
func skipped(name string) bool {
	l := locate(name)
	return l.top() && l.base() == testsDir
}

// misplacedFolder returns the fault in the name of a folder, or nil.
func misplacedFolder(name string) *faults.Fault {
	l := locate(name)
	fold := strings.ToLower(l.base())
	parent := path.Dir(name)
	switch {
	case name == tenantsDir:
		return nil
	case parent == tenantsDir && !snapshot.ValidTenant(l.base()):
		return misplaced(name, strconv.Quote(l.base())+" cannot be the name of a tenant", "use lower-case letters, digits, - and _")
	case parent == tenantsDir:
		return nil
	case fold == "tenant" || fold == tenantsDir:
		return misplaced(name, "a folder of this name would be the root's, not tenants'", "the folder of tenants is tenants/ in the root of the store")
	case len(l.parts) > 1 && l.parts[0] == accessDir:
		return misplaced(name, "is not read", "access documents are in "+accessDir+"/ itself")
	case l.top() && (fold == "test" || fold == testsDir):
		return misplaced(name, "is not read", "tests are in "+path.Join(parent, testsDir)+"/")
	}
	if near := nearFolder(fold); l.top() && near != "" && near != l.base() {
		return misplaced(name, "is nearly the name of a folder with a meaning", "did you mean "+path.Join(parent, near)+"/?")
	}
	return nil
}

// misplacedFile returns the fault in the name of a file that is not read, or nil.
func misplacedFile(name string) *faults.Fault {
	l := locate(name)
	fold := strings.ToLower(l.base())
	if parent := path.Dir(name); parent == tenantsDir && looksRead(fold) {
		return misplaced(name, "is not in the directory of a tenant", "move it to the folder of one, as in tenants/NAME/"+l.base())
	}
	if slices.Equal([]string{manifestFile}, l.parts) || slices.Equal([]string{signatureFile}, l.parts) {
		return nil // a tenant's; the root's are read
	}
	if looksLikePolicy(fold) {
		return misplacedPolicy(name, l)
	}
	if len(l.parts) > 1 && l.parts[0] == accessDir {
		return misplacedDocument(name, l)
	}
	known := meantFile(fold, l.top())
	switch {
	case known != "" && l.top():
		return misplaced(name, "is not read", "did you mean "+known+"?")
	case known != "":
		return misplaced(name, "is not read in a folder of policies", "move it to "+path.Join(strings.TrimSuffix(name, path.Join(l.parts...)), known))
	case len(l.parts) > 1 && l.parts[0] == "entities" && path.Ext(fold) == ".json":
		return misplaced(name, "is not read", "entities are in entities.json")
	}
	return nil
}

// misplacedPolicy returns why a file that looks like a policy file is not read.
func misplacedPolicy(name string, l location) *faults.Fault {
	if base := l.base(); path.Ext(base) != policySuffix {
		stem, _, _ := strings.Cut(base, ".")
		return misplaced(name, "is not read: the names of policy files end with "+policySuffix, "did you mean "+stem+policySuffix+"?")
	}
	return misplaced(name, "policies are not read in "+path.Dir(name)+"/", "move it to the root of the store, or to a folder of another name")
}

// misplacedDocument returns why a file in a folder of access documents is not read, or nil for a file that
// clearly is none.
func misplacedDocument(name string, l location) *faults.Fault {
	extension := path.Ext(l.base())
	switch {
	case slices.Contains(besideDocuments, strings.ToLower(extension)), strings.HasSuffix(extension, "~"), strings.EqualFold(l.base(), "README"):
		return nil
	case extension != ".json":
		stem, _, _ := strings.Cut(l.base(), ".")
		return misplaced(name, "is not read: the names of access documents end with .json", "did you mean "+stem+".json?")
	case slices.Contains(snapshot.KeptFiles(), l.base()):
		return misplaced(name, "is not read as an access document", "move it to the root of the store, or choose another name and state the server in it")
	}
	return misplaced(name, "cannot be the name of an access document", `use letters, digits, ".", - and _, and state the server in it`)
}

// besideDocuments are the extensions of files beside access documents: texts, and what editors leave.
var besideDocuments = []string{".md", ".txt", ".bak", ".orig", ".old", ".rej", ".swp", ".tmp"}

// looksRead reports whether a lowercase name resembles one that is read.
func looksRead(fold string) bool { return looksLikePolicy(fold) || meantFile(fold, true) != "" }

// looksLikePolicy reports whether a lowercase name resembles that of a policy file.
func looksLikePolicy(fold string) bool {
	return strings.HasSuffix(fold, policySuffix+".txt") || nearSuffix(path.Ext(fold)) == policySuffix
}

// meantFile returns the relevant file whose name a lowercase name resembles, or "". In folders where such
// a file is never read, it matches only names without another use.
func meantFile(fold string, top bool) string {
	extension := path.Ext(fold)
	switch {
	case nearSuffix(extension) == schemaSuffix:
		return "schema.cedarschema"
	case strings.HasSuffix(fold, "cedarschema.json"):
		return "schema.json"
	case strings.HasPrefix(fold, "entit") && slices.Contains([]string{".json", ".jsonl", ".ndjson", ".yaml", ".yml"}, extension):
		return "entities.json"
	case fold == "config.yml":
		return "config.yaml"
	}
	if slices.Contains(nearNames.files, fold) {
		return fold
	}
	if !top {
		return ""
	}
	return nearFile(fold)
}

// mayBeFolder reports whether a name could be a folder's. Only names that clearly belong to files
// irrelevant to a store cannot.
func mayBeFolder(name string) bool {
	extension := path.Ext(name)
	return extension == "" || extension == ".d" || looksRead(strings.ToLower(path.Base(name)))
}

func misplaced(name, message, hint string) *faults.Fault {
	return &faults.Fault{File: name, Message: message, Hint: hint}
}
