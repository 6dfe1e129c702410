package decisionlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// Layout of a bbolt file, version 2. Numbers are in host byte order.
const (
	pageSize      = 4096
	pageHeader    = 16 // id 8, flags 2, count 2, overflow 4
	elementHeader = 16 // leaf: flags, pos, key size, value size, 4 each; branch: pos 4, key size 4, page id 8
	bucketHeader  = 16 // root page id 8, sequence 8

	branchPage    = 0x01
	leafPage      = 0x02
	bucketElement = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)
)

// maxPage bounds the memory that a damaged page can claim: bbolt does not split a leaf with up to
// four elements, and a line has at most maxLine bytes.
const maxPage = 8 * maxLine

// A meta has the fields of a meta page that the check uses.
type meta struct {
	root     uint64 // page id of the root bucket
	freelist uint64
	pages    uint64 // high-water mark, in pages
	txid     uint64
}

// An element is an entry of a leaf or branch page.
type element struct {
	key, value []byte
	child      uint64 // page id of the child, in a branch
	bucket     bool   // value is a bucket
}

// pages walks the pages of a file that nobody writes. It reads many pages at once where the order
// in the file is the order in the tree, as in most of an append-only file.
type pages struct {
	file io.ReaderAt
	seen []bool // by page id, up to the high-water mark

	next     uint64 // page id after the page read last
	ahead    []byte // bytes of the file that were read ahead
	aheadAt  uint64 // page id at which ahead begins
	elements []element
}

// readAhead is the number of pages in one read.
const readAhead = 64

// checkPages reports the first fault in the page tree of a bbolt file of the given size: a page
// that is missing, contradicts its parent, is used twice or is out of order. bbolt can safely read
// a file without such a fault.
func checkPages(file io.ReaderAt, size int64) error {
	m, err := checkMeta(file, size)
	if err != nil {
		return err
	}
	p := &pages{file: file, seen: make([]bool, m.pages)}
	if err := p.walk(m.root, nil, nil, true); err != nil {
		return damaged(-1, "is damaged: %v", err)
	}
	return nil
}

// checkMeta returns the newer meta page. The file must have all pages that it counts.
func checkMeta(file io.ReaderAt, size int64) (meta, error) {
	m, err := readMeta(file)
	if err != nil {
		return m, err
	}
	if m.pages > uint64(size)/pageSize {
		return m, damaged(-1, "is cut off: %d pages, room for %d", m.pages, size/pageSize)
	}
	if m.freelist != noFreelist {
		return m, damaged(-1, "has a stored free list: another program wrote to it")
	}
	return m, nil
}

// readMeta returns the newer of the two meta pages. Both must be intact. If one is damaged, bbolt
// silently uses the other and so undoes a commit. A meta page is smaller than a sector, so an
// interrupted write cannot explain the damage.
func readMeta(file io.ReaderAt) (meta, error) {
	buf := make([]byte, 2*pageSize)
	if _, err := file.ReadAt(buf, 0); err != nil {
		return meta{}, fmt.Errorf("read meta pages: %w", err)
	}
	even, evenValid := decodeMeta(buf[pageHeader:])
	odd, oddValid := decodeMeta(buf[pageSize+pageHeader:])
	switch {
	case !evenValid || !oddValid:
		return meta{}, damaged(-1, "has a damaged meta page: its last commit may be lost")
	case even.txid > odd.txid:
		return even, nil
	}
	return odd, nil
}

func decodeMeta(b []byte) (meta, bool) {
	sum := fnv.New64a()
	sum.Write(b[:56])
	valid := binary.NativeEndian.Uint32(b[0:]) == metaMagic &&
		binary.NativeEndian.Uint32(b[4:]) == metaVersion &&
		binary.NativeEndian.Uint32(b[8:]) == pageSize &&
		binary.NativeEndian.Uint64(b[56:]) == sum.Sum64()
	return meta{
		root:     binary.NativeEndian.Uint64(b[16:]),
		freelist: binary.NativeEndian.Uint64(b[32:]),
		pages:    binary.NativeEndian.Uint64(b[40:]),
		txid:     binary.NativeEndian.Uint64(b[48:]),
	}, valid
}

// walk checks page id and all pages below it. The keys must be at least low and less than high,
// unless these are nil. Only pages of the root bucket may contain buckets.
func (p *pages) walk(id uint64, low, high []byte, root bool) error {
	page, err := p.read(id)
	if err != nil {
		return err
	}
	leaf := !root && binary.NativeEndian.Uint16(page[8:]) == leafPage
	if !leaf { // the elements stay in use while their children are read
		page = bytes.Clone(page)
	}
	elements, err := parse(page, p.elements[:0])
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if p.elements = elements; !leaf {
		p.elements = nil
	}
	if err := ordered(elements, low, high); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	for i, e := range elements {
		switch {
		case e.child != 0:
			next := high
			if i+1 < len(elements) {
				next = elements[i+1].key
			}
			err = p.walk(e.child, e.key, next, root)
		case e.bucket != root:
			err = fmt.Errorf("page %d: a bucket is where a value should be, or a value where a bucket", id)
		case e.bucket:
			err = p.bucket(e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket, which has pages of its own or is stored inline in value.
func (p *pages) bucket(value []byte) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("a bucket has %d bytes", len(value))
	}
	if id := binary.NativeEndian.Uint64(value); id != 0 {
		return p.walk(id, nil, nil, false)
	}
	elements, err := parse(value[bucketHeader:], nil)
	if err != nil {
		return fmt.Errorf("inline bucket: %w", err)
	}
	for _, e := range elements {
		if e.bucket || e.child != 0 {
			return fmt.Errorf("an inline bucket contains buckets")
		}
	}
	return ordered(elements, nil, nil)
}

// read returns a page with its overflow. No page may be used twice. The result is valid until the
// next read.
func (p *pages) read(id uint64) ([]byte, error) {
	if id < 2 || id >= uint64(len(p.seen)) {
		return nil, fmt.Errorf("page %d does not exist", id)
	}
	page, err := p.bytes(id, 1)
	if err != nil {
		return nil, err
	}
	more := uint64(binary.NativeEndian.Uint32(page[12:]))
	if got := binary.NativeEndian.Uint64(page); got != id {
		return nil, fmt.Errorf("page %d says it is page %d", id, got)
	}
	if id+more >= uint64(len(p.seen)) || more >= maxPage/pageSize {
		return nil, fmt.Errorf("page %d overflows by %d pages", id, more)
	}
	for i := id; i <= id+more; i++ {
		if p.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		p.seen[i] = true
	}
	p.next = id + more + 1
	if more == 0 {
		return page, nil
	}
	return p.bytes(id, 1+more)
}

// bytes returns count pages of the file, starting with page id.
func (p *pages) bytes(id, count uint64) ([]byte, error) {
	if id < p.aheadAt || id+count > p.aheadAt+uint64(len(p.ahead))/pageSize {
		want := count
		if id == p.next {
			want = max(count, min(readAhead, uint64(len(p.seen))-id))
		}
		p.aheadAt, p.ahead = id, slices.Grow(p.ahead[:0], int(want*pageSize))[:want*pageSize]
		if _, err := p.file.ReadAt(p.ahead, int64(id)*pageSize); err != nil {
			p.ahead = nil
			return nil, err
		}
	}
	return p.ahead[(id-p.aheadAt)*pageSize:][:count*pageSize], nil
}

// parse returns the elements of a page in the memory of into. All elements must be inside the page.
func parse(page []byte, into []element) ([]element, error) {
	if len(page) < pageHeader {
		return nil, fmt.Errorf("it has %d bytes", len(page))
	}
	flags := binary.NativeEndian.Uint16(page[8:])
	count := int(binary.NativeEndian.Uint16(page[10:]))
	table := page[pageHeader:]
	if flags != leafPage && flags != branchPage {
		return nil, fmt.Errorf("it has flags %#x", flags)
	}
	if count*elementHeader > len(table) || flags == branchPage && count == 0 {
		return nil, fmt.Errorf("it has %d elements", count)
	}
	elements := slices.Grow(into, count)
	for i := range count {
		e, err := parseElement(table[i*elementHeader:], flags == leafPage)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		elements = append(elements, e)
	}
	return elements, nil
}

// parseElement parses the element whose header is at the start of b. The element's position is
// relative to that start.
func parseElement(b []byte, leaf bool) (element, error) {
	var e element
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[4*i:])) }
	pos, keySize, valueSize := word(0), word(1), uint64(0)
	if leaf {
		e.bucket = word(0)&bucketElement != 0
		pos, keySize, valueSize = word(1), word(2), word(3)
	} else {
		e.child = binary.NativeEndian.Uint64(b[8:])
		if e.child == 0 {
			return e, fmt.Errorf("it leads to page 0")
		}
	}
	if keySize == 0 || pos+keySize+valueSize > uint64(len(b)) {
		return e, fmt.Errorf("it is outside the page")
	}
	e.key, e.value = b[pos:][:keySize], b[pos+keySize:][:valueSize]
	return e, nil
}

// ordered checks that the keys ascend and are in [low, high).
func ordered(elements []element, low, high []byte) error {
	for i, e := range elements {
		if bytes.Compare(e.key, low) < 0 || i > 0 && bytes.Equal(e.key, low) {
			return fmt.Errorf("key %x is out of order", e.key)
		}
		if high != nil && bytes.Compare(e.key, high) >= 0 {
			return fmt.Errorf("key %x is not below %x", e.key, high)
		}
		low = e.key
	}
	return nil
}
