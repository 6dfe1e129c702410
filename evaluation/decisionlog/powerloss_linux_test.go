package decisionlog_test

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A call is a system call that changes files, as strace tells it.
type call struct {
	name string
	path string // of the file, or of the old name
	to   string // the new name
	data []byte
	at   int64 // where it writes, or the new size; -1 for the end
}

// traced are the calls that TestPowerLoss understands.
const traced = "openat,pwrite64,write,ftruncate,fdatasync,fsync,linkat,renameat,unlinkat,mkdirat"

var (
	callLine    = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>`)
	quotedText  = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
	pathOfFile  = regexp.MustCompile(`^\d+<((?:\\x[0-9a-f]{2}|[^>])*)>`)
)

// trace runs a child on dir and returns its calls in their order. A sync
// counts when it returns, all else when it is called.
func trace(t *testing.T, tracer, child, dir string) []call {
	t.Helper()
	log := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(tracer, "-f", "-qq", "-y", "-xx", "-s", "20000000", "-o", log, "-e", "trace="+traced, os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+child)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var calls []call
	waiting := make(map[string]string) // syncs that have not returned, by thread
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := resumedLine.FindStringSubmatch(line); m != nil {
			line = waiting[m[1]+m[2]]
		} else if strings.Contains(line, "<unfinished ...>") && strings.Contains(line, "sync(") {
			m := callLine.FindStringSubmatch(line)
			waiting[m[1]+m[2]] = strings.Replace(line, "<unfinished ...>", "", 1)
			continue
		}
		if c, ok := parseCall(line); ok {
			calls = append(calls, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls
}

func parseCall(line string) (c call, ok bool) {
	m := callLine.FindStringSubmatch(line)
	if m == nil || strings.Contains(line, ") = -1") {
		return c, false
	}
	c.name = m[2]
	var texts []string
	for _, q := range quotedText.FindAllStringSubmatch(m[3], 2) {
		texts = append(texts, unhex(q[1]))
	}
	if p := pathOfFile.FindStringSubmatch(m[3]); p != nil {
		c.path = unhex(p[1])
	}
	_, rest, _ := strings.Cut(m[3], `", `)
	switch c.name {
	case "openat", "mkdirat", "unlinkat":
		c.path = texts[0]
		return c, c.name != "openat" || strings.Contains(m[3], "O_CREAT") || strings.Contains(m[3], "O_TRUNC")
	case "linkat", "renameat":
		c.path, c.to = texts[0], texts[1]
	case "write":
		c.data, c.at = []byte(texts[0]), -1
	case "pwrite64":
		c.data = []byte(texts[0])
		fmt.Sscanf(rest, "%d, %d", new(int64), &c.at)
	case "ftruncate":
		_, size, _ := strings.Cut(m[3], ">, ")
		fmt.Sscanf(size, "%d", &c.at)
	}
	return c, true
}

func unhex(text string) string {
	if !strings.HasPrefix(text, `\x`) {
		return text
	}
	var out strings.Builder
	for _, digits := range strings.Split(text, `\x`)[1:] {
		b, err := strconv.ParseUint(digits, 16, 8)
		if err != nil {
			return text
		}
		out.WriteByte(byte(b))
	}
	return out.String()
}

// A disk is what is on it for sure, and what was asked of it since.
type disk struct {
	names   map[string]*inode
	pending []func(names map[string]*inode) // changes of names
	noSync  bool                            // it lies about what is on it
}

// An inode is a file, whatever its name.
type inode struct {
	synced  content
	pending []call
	dir     bool
}

// A content is what a file has, without the zeros at its end that nobody wrote.
type content struct {
	bytes []byte
	size  int
}

// now returns the names as the program sees them.
func (d *disk) now() map[string]*inode { return d.after(len(d.pending)) }

func (d *disk) after(n int) map[string]*inode {
	names := maps.Clone(d.names)
	for _, change := range d.pending[:n] {
		change(names)
	}
	return names
}

func (d *disk) rename(change func(names map[string]*inode)) { d.pending = append(d.pending, change) }

// do carries out a call.
func (d *disk) do(c call) {
	switch file := d.now()[c.path]; c.name {
	case "openat", "mkdirat":
		if file == nil {
			created := &inode{dir: c.name == "mkdirat"}
			d.rename(func(names map[string]*inode) { names[c.path] = created })
		} else {
			file.pending = append(file.pending, call{name: "ftruncate"})
		}
	case "linkat":
		d.rename(func(names map[string]*inode) { names[c.to] = file })
	case "renameat":
		d.rename(func(names map[string]*inode) { move(names, c.path, c.to) })
	case "unlinkat":
		d.rename(func(names map[string]*inode) { delete(names, c.path) })
	case "fsync", "fdatasync":
		if file != nil && !d.noSync {
			d.sync(file)
		}
	default:
		if file != nil {
			file.pending = append(file.pending, c)
		}
	}
}

// move renames a file, or a directory with all that is in it.
func move(names map[string]*inode, from, to string) {
	for name, file := range maps.Clone(names) {
		if rest, found := strings.CutPrefix(name, from); found && (rest == "" || rest[0] == '/') {
			delete(names, name)
			names[to+rest] = file
		}
	}
}

// sync puts on the disk what was asked of a file, or of names if it is a
// directory.
func (d *disk) sync(file *inode) {
	if file.dir {
		d.names, d.pending = d.now(), nil
		return
	}
	for _, c := range file.pending {
		c.apply(&file.synced, len(c.data))
	}
	file.pending = nil
}

// apply carries out the first n bytes of a write, or a change of size.
func (c call) apply(to *content, n int) {
	if c.name == "ftruncate" {
		to.size = int(c.at)
		to.bytes = to.bytes[:min(len(to.bytes), to.size)]
		return
	}
	at := int(c.at)
	if at < 0 {
		at = to.size
	}
	if until := at + n; until > len(to.bytes) {
		to.bytes = append(to.bytes, make([]byte, until-len(to.bytes))...)
		to.size = max(to.size, until)
	}
	copy(to.bytes[at:], c.data[:n])
}

const sector = 512

// crash writes to dir what is on the disk after the power went: what is there
// for sure and, of the rest, some of the first changes of names, and of each
// file's writes any, each whole, not at all, or up to some sector.
func (d *disk) crash(t *testing.T, r *rand.Rand, from, dir string) {
	t.Helper()
	names := d.after(r.IntN(len(d.pending) + 1))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		file := names[name]
		path := filepath.Join(dir, strings.TrimPrefix(name, from))
		if file.dir {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		left := content{bytes.Clone(file.synced.bytes), file.synced.size}
		for _, c := range file.pending {
			switch n := len(c.data); r.IntN(3) {
			case 0:
				c.apply(&left, n)
			case 1:
				if c.name != "ftruncate" {
					c.apply(&left, min(n, r.IntN(n/sector+1)*sector))
				}
			}
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, left.bytes)
		if err := os.Truncate(path, int64(left.size)); err != nil {
			t.Fatal(err)
		}
	}
}

// survived reports what is wrong with a log after a crash, and returns how
// many of the entries are lost.
func survived(t *testing.T, dir string, ids []string) error {
	t.Helper()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		return err
	}
	report, err := l.Verify(t.Context())
	if err != nil {
		_ = l.Close()
		return err
	}
	text := export(t, l.Reader)
	if err := l.Close(); err != nil {
		return err
	}
	missing := int64(0)
	for _, id := range ids {
		if !bytes.Contains(text, []byte(`"id":"`+id+`"`)) {
			missing++
		}
	}
	if missing > report.Pruned {
		return fmt.Errorf("%d of %d accepted entries are lost", missing, len(ids))
	}
	return nil
}

// TestPowerLoss records every call by which a log changes its files, and cuts
// the power between any two of them: what was not flushed may be there, not be
// there, or be there in part. The log opens all the same, verifies, and has
// every entry that was accepted by then. One control is a disk that says it
// has flushed and has not, the other a log that accepts before it flushes.
func TestPowerLoss(t *testing.T) {
	tracer := external.Program(t, "strace")
	dir := filepath.Join(t.TempDir(), "state")
	calls := trace(t, tracer, "brief", dir)
	controls := max(*images/10, 40)
	var bad, lying, hasty losses
	t.Run("images", func(t *testing.T) {
		bad.count(t, "flushed", *images, calls, dir, disk{})
		lying.count(t, "control: a disk that lies", controls, calls, dir, disk{noSync: true})
		early := filepath.Join(t.TempDir(), "state")
		hasty.count(t, "control: accepted before it is flushed", controls, trace(t, tracer, "hasty", early), early, disk{})
	})
	if len(bad.faults) > 0 {
		t.Errorf("%d of %d images are bad, the first: %v", len(bad.faults), *images, bad.faults[0])
	}
	if 5*len(lying.faults) < 4*controls {
		t.Errorf("control: %d of %d images of a disk that lies are bad, want more", len(lying.faults), controls)
	}
	if 5*len(hasty.faults) < 4*controls {
		t.Errorf("control: %d of %d images of a log that accepts too early are bad, want more", len(hasty.faults), controls)
	}
	t.Logf("%d calls, %d images: %d bad; of %d each, on a disk that lies %d bad, accepted before it is flushed %d bad",
		len(calls), *images, len(bad.faults), controls, len(lying.faults), len(hasty.faults))
}

// losses are what is wrong with images of a disk.
type losses struct {
	mu     sync.Mutex
	faults []error
}

// imagesAtOnce is how many images are made of one pass through the calls.
const imagesAtOnce = 2500

// count adds what is wrong with that many images, in tests of their own.
func (l *losses) count(t *testing.T, name string, images int, calls []call, dir string, empty disk) {
	for n := 0; n < images; n += imagesAtOnce {
		t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
			t.Parallel()
			d := empty
			d.names = map[string]*inode{filepath.Dir(dir): {dir: true}}
			found := powerLosses(t, rand.New(rand.NewPCG(11, uint64(n))), calls, dir, &d, min(imagesAtOnce, images-n))
			l.mu.Lock()
			defer l.mu.Unlock()
			l.faults = append(l.faults, found...)
		})
	}
}

// powerLosses makes images of a disk, and returns what is wrong with them.
func powerLosses(t *testing.T, r *rand.Rand, calls []call, dir string, d *disk, images int) (bad []error) {
	t.Helper()
	cuts := make(map[int]int)
	for range images {
		cuts[r.IntN(len(calls))]++
	}
	image := filepath.Join(t.TempDir(), "image")
	var ids []string
	for i, c := range calls {
		if strings.HasPrefix(c.path, dir) {
			d.do(c)
		} else if strings.HasPrefix(c.path, "pipe:") {
			ids = append(ids, strings.Fields(string(c.data))...)
		}
		for range cuts[i] {
			d.crash(t, r, dir, image)
			if err := survived(t, image, ids); err != nil {
				bad = append(bad, fmt.Errorf("after call %d, %s %s: %w", i, c.name, filepath.Base(c.path), err))
			}
			if err := os.RemoveAll(image); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(ids) == 0 {
		t.Error("no entry was accepted")
	}
	return bad
}
