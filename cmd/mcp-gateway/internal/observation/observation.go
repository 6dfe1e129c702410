// Package observation counts what enforcement would do with calls to servers in
// observe mode.
//
// The audit trail has each call. A trail is locked by the process that writes it,
// and a desktop client keeps that process running. A [Summary] can be read at any
// time: it is one database of all processes, open for one transaction at a time.
// Counts are written once a second, so that no call waits for them. A process that
// is killed loses those of its last second, and the trail still has the calls.
package observation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
	"github.com/policy-service/policy-service/obligations/plain"
)

// A Key is what calls have in common that are counted together.
type Key struct {
	Server  string `json:"server"`
	Method  string `json:"method"`
	Name    string `json:"name"` // of the tool, the prompt or the resource; "" where the method names none
	Caller  string `json:"caller"`
	Tenant  string `json:"tenant,omitzero"`
	Refusal string `json:"refusal,omitzero"` // reason code with which the calls would be refused; "" for permitted calls
	Why     string `json:"why,omitzero"`
}

// A Row counts the calls of a key.
type Row struct {
	Key
	Calls         int64     `json:"calls"`
	First         time.Time `json:"first"`
	Last          time.Time `json:"last"`
	Decision      string    `json:"decision,omitzero"` // Decision-ID of the last call
	NotCarriedOut []string  `json:"not_carried_out,omitempty"`
	Policies      []string  `json:"policies,omitempty"` // that determined Decision; not written
}

// add adds the calls of a later row.
func (r *Row) add(later *Row) {
	first := r.First
	calls := r.Calls
	*r = *later
	r.Calls += calls
	if calls > 0 {
		r.First = first
	}
}

// MaxRows bounds the rows of a summary. Calls beyond it are counted in rows without
// the name and the reason, because clients choose the names of resources.
const MaxRows = 10_000

// A Summary is safe for concurrent use.
type Summary struct {
	file    *boltfile.File
	mu      sync.Mutex
	pending map[Key]*Row
}

var bucket = []byte("rows")

// Open opens the summary in a file, or makes it.
func Open(path string) (*Summary, error) {
	file, err := boltfile.Open(path, bucket)
	if err != nil {
		return nil, fmt.Errorf("open summary of observed calls: %w", err)
	}
	return &Summary{file: file, pending: make(map[Key]*Row)}, nil
}

// Add counts the calls of a row at the next [Summary.Flush].
func (s *Summary) Add(row *Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pending[row.Key]
	if known == nil && len(s.pending) >= MaxRows {
		row.Key = row.withoutNames()
		known = s.pending[row.Key]
	}
	if known == nil {
		known = &Row{}
		s.pending[row.Key] = known
	}
	known.add(row)
}

func (k Key) withoutNames() Key {
	k.Name, k.Why = "", ""
	return k
}

const flushInterval = time.Second

// Run writes the counts once a second, until ctx ends.
func (s *Summary) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.Flush(); err != nil {
			log.Warn("summary of observed calls", "error", err)
		}
	}
}

// Flush writes the counts. After an error they are written the next time.
func (s *Summary) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return nil
	}
	err := s.file.Update(func(tx *bbolt.Tx) error {
		rows := tx.Bucket(bucket)
		size := rows.Stats().KeyN
		for _, row := range s.pending {
			added, err := put(rows, row, size >= MaxRows)
			if err != nil {
				return err
			}
			if added {
				size++
			}
		}
		return nil
	})
	if err == nil {
		clear(s.pending)
	}
	return err
}

// put adds a row to those of the database. If it is full, a new row goes to the one
// without names.
func put(rows *bbolt.Bucket, later *Row, full bool) (added bool, err error) {
	row := *later
	for {
		key, err := json.Marshal(row.Key, json.Deterministic(true))
		if err != nil {
			return false, err
		}
		known := rows.Get(key)
		if known == nil && full && row.Key != row.withoutNames() {
			row.Key = row.withoutNames()
			continue
		}
		sum := Row{}
		if known != nil {
			if err := json.Unmarshal(known, &sum); err != nil {
				return false, fmt.Errorf("read row: %w", err)
			}
		}
		sum.add(&row)
		text, err := json.Marshal(&sum)
		if err != nil {
			return false, err
		}
		return known == nil, rows.Put(key, text)
	}
}

// Rows returns the written counts, by server, name, caller and refusal.
func (s *Summary) Rows() (all []Row, err error) {
	err = s.file.View(func(tx *bbolt.Tx) error {
		all, err = readRows(tx)
		return err
	})
	return all, err
}

func readRows(tx *bbolt.Tx) (all []Row, err error) {
	err = tx.Bucket(bucket).ForEach(func(_, text []byte) error {
		var row Row
		if err := json.Unmarshal(bytes.Clone(text), &row); err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		all = append(all, row)
		return nil
	})
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Method, b.Method), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Caller, b.Caller), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Refusal, b.Refusal), strings.Compare(a.Why, b.Why))
	})
	return all, err
}

// Write writes rows as JSON or as a table.
func Write(w io.Writer, rows []Row, asJSON bool) error {
	if asJSON {
		return writeJSON(w, rows)
	}
	return writeTable(w, rows)
}

// writeTable writes a table. Clients and servers chose some of its texts.
func writeTable(w io.Writer, rows []Row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SERVER\tMETHOD\tNAME\tCALLER\tCALLS\tLAST\tWOULD\tREASON\tPOLICIES\tDECISION")
	for _, r := range rows {
		cells := []string{
			r.Server, r.Method, r.Name, r.Caller, fmt.Sprint(r.Calls), r.Last.UTC().Format(time.RFC3339),
			cmp.Or(r.Refusal, "permitted"), r.Why, strings.Join(r.Policies, " "), r.Decision,
		}
		for i := range cells {
			cells[i] = plain.Text(cells[i])
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

func writeJSON(w io.Writer, rows []Row) error {
	if rows == nil {
		rows = []Row{}
	}
	text, err := json.Marshal(rows, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// Take removes the written counts, and returns them.
func (s *Summary) Take() (all []Row, err error) {
	err = s.file.Update(func(tx *bbolt.Tx) error {
		if all, err = readRows(tx); err != nil {
			return err
		}
		if err := tx.DeleteBucket(bucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(bucket)
		return err
	})
	return all, err
}
