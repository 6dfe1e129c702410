package policystore_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// A directory that changes while it is read: listed is called before it is
// listed for the nth time, opened before a file is opened for the nth time.
type directory struct {
	fstest.MapFS
	lists, opens   int
	listed, opened func(n int)
}

func (d *directory) ReadDir(name string) ([]fs.DirEntry, error) {
	d.lists++
	if d.listed != nil {
		d.listed(d.lists)
	}
	return d.MapFS.ReadDir(name)
}

func (d *directory) Open(name string) (fs.File, error) {
	d.opens++
	if d.opened != nil {
		d.opened(d.opens)
	}
	return d.MapFS.Open(name)
}

// put writes a file as of some second.
func (d *directory) put(name, text string, second int) {
	d.MapFS[name] = &fstest.MapFile{Data: []byte(text), ModTime: time.Unix(int64(second), 0)}
}

func newDirectory() *directory {
	d := &directory{MapFS: fstest.MapFS{}}
	d.put("a.cedar", policy(1), 0)
	d.put("b.cedar", policy(2), 0)
	return d
}

// What is read is one state of the directory.
func TestReadOfAChangingDirectory(t *testing.T) {
	cut := policy(1)[:40]
	tests := map[string]struct {
		change func(d *directory)
		want   texts
	}{
		"not at all": {
			change: func(*directory) {},
			want:   texts{"a.cedar": policy(1), "b.cedar": policy(2)},
		},
		"a file that is cut off when it is read": {
			change: func(d *directory) {
				d.put("a.cedar", cut, 1)
				d.opened = func(n int) {
					if n == 2 {
						d.put("a.cedar", policy(1), 2)
					}
				}
			},
			want: texts{"a.cedar": policy(1), "b.cedar": policy(2)},
		},
		"a file of the same size": {
			change: func(d *directory) {
				d.opened = func(n int) {
					if n == 1 {
						d.put("b.cedar", policy(3), 1)
					}
				}
			},
			want: texts{"a.cedar": policy(1), "b.cedar": policy(3)},
		},
		"a file that is added": {
			change: func(d *directory) {
				d.listed = func(n int) {
					if n == 2 {
						d.put("c.cedar", policy(3), 1)
					}
				}
			},
			want: texts{"a.cedar": policy(1), "b.cedar": policy(2), "c.cedar": policy(3)},
		},
		"a file that goes before it is read": {
			change: func(d *directory) {
				d.opened = func(n int) {
					if n == 1 {
						delete(d.MapFS, "b.cedar")
					}
				}
			},
			want: texts{"a.cedar": policy(1)},
		},
		"eight times": {
			change: func(d *directory) {
				d.listed = func(n int) {
					if n <= 8 {
						d.put("b.cedar", policy(2), n)
					}
				}
			},
			want: texts{"a.cedar": policy(1), "b.cedar": policy(2)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDirectory()
			test.change(d)
			archive, err := policystore.Read(d)
			must(t, err)
			if diff := cmp.Diff(test.want, textsOf(archive)); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
		})
	}
}

// A directory that never rests is not read, and is not read for ever.
func TestReadOfADirectoryThatKeepsChanging(t *testing.T) {
	d := newDirectory()
	d.listed = func(n int) { d.put("b.cedar", policy(2), n) }
	if archive, err := policystore.Read(d); !errors.Is(err, policystore.ErrUnstable) || archive != nil {
		t.Errorf("read %q, %v, want ErrUnstable", textsOf(archive), err)
	}
	if d.lists > 100 {
		t.Errorf("the directory was listed %d times", d.lists)
	}
}

// fleeting is a directory of which a file goes once, between the directory's
// listing and a look at the file, as when an editor replaces it.
type fleeting struct {
	*directory
	gone bool
}

func (f *fleeting) Stat(name string) (fs.FileInfo, error) {
	if name == "b.cedar" && !f.gone {
		f.gone = true
		f.put("b.cedar", policy(3), 1)
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return f.MapFS.Stat(name)
}

func TestReadOfAFileThatIsReplaced(t *testing.T) {
	archive, err := policystore.Read(&fleeting{directory: newDirectory()})
	must(t, err)
	if got := string(archive["b.cedar"]); got != policy(3) {
		t.Errorf("read %q", got)
	}
}

// broken is a directory of which no file can be opened.
type broken struct{ *directory }

var errBroken = errors.New("input/output error")

func (b broken) Open(name string) (fs.File, error) {
	if name == "." {
		return b.directory.Open(name)
	}
	return nil, errBroken
}

func TestReadFails(t *testing.T) {
	if archive, err := policystore.Read(broken{newDirectory()}); !errors.Is(err, errBroken) || archive != nil {
		t.Errorf("read %q, %v", textsOf(archive), err)
	}
}
