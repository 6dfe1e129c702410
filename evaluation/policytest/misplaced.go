package policytest

import (
	"io/fs"
	"path"
	"strings"

	"github.com/policy-service/policy-service/evaluation/faults"
)

// Misplaced lists the files of the policy store at the root of fsys that look like tests but are not
// read: those with another extension and those in subfolders. Otherwise they would seem to pass without
// ever running.
func Misplaced(fsys fs.FS) faults.List {
	var problems faults.List
	for _, folder := range folders(fsys) {
		_ = fs.WalkDir(fsys, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasPrefix(entry.Name(), ".") {
				return skip(entry)
			}
			if fault := misplaced(folder, name); fault != nil && !entry.IsDir() {
				problems = append(problems, *fault)
			}
			return nil
		})
	}
	return problems
}

// skip skips a folder that is hidden or unreadable. Nothing in it can be mistaken for a test.
func skip(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func misplaced(folder, name string) *faults.Fault {
	extension := path.Ext(name)
	stem := strings.TrimSuffix(path.Base(name), extension)
	switch fold := strings.ToLower(extension); {
	case fold != ".yaml" && fold != ".yml":
		return nil
	case path.Dir(name) != folder:
		return &faults.Fault{File: name, Message: "is not read: it is in a folder below " + folder + "/", Hint: "move it to " + path.Join(folder, stem+".yaml")}
	case extension != ".yaml":
		return &faults.Fault{File: name, Message: "is not read: the names of test files end with .yaml", Hint: "did you mean " + stem + ".yaml?"}
	}
	return nil
}
