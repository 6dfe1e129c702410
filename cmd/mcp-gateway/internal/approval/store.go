package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A state of a call.
type state string

const (
	asking  state = "asking"
	waiting state = "waiting"
	claimed state = "claimed"
	done    state = "done"
	unknown state = "unknown"
	refused state = "refused"
)

// follows says which states a call may go to from another.
var follows = map[state][]state{
	asking:  {waiting},
	waiting: {claimed, refused},
	claimed: {done, unknown, waiting}, // waiting: the server wants to be called again
}

// A record is a call that waits, or has.
type record struct {
	Handle          string                      `json:"handle"` // what clients call it, not to be guessed
	Tenant          string                      `json:"tenant,omitzero"`
	Subject         authzen.Subject             `json:"subject"` // the caller, without properties
	Server          string                      `json:"server"`
	Session         string                      `json:"session,omitzero"` // [enforce.Call.Session]
	Method          string                      `json:"method"`
	Name            string                      `json:"name"`
	Definition      string                      `json:"definition,omitzero"` // digest of the tool's
	Digest          string                      `json:"digest"`              // of the call
	Params          jsontext.Value              `json:"params"`              // what the server gets, but for _meta
	Request         *authzen.EvaluationRequest  `json:"request"`             // that was denied
	Batch           *authzen.EvaluationsRequest `json:"batch,omitzero"`      // where several evaluations were asked for, and no Request
	approvalRequest                             // the first
	More            []approvalRequest           `json:"more,omitempty"`
	Denial          string                      `json:"denial,omitzero"` // the evaluation that asked for an approval
	Code            int                         `json:"code,omitzero"`   // of its refusal
	State           state                       `json:"state"`
	Reason          string                      `json:"reason,omitzero"` // of a refusal, and what the approver wrote
	Comment         string                      `json:"comment,omitzero"`
	Shown           bool                        `json:"shown,omitzero"`  // to the user of a client, once
	Rounds          int                         `json:"rounds,omitzero"` // times that the server wanted to be called again
	Created         time.Time                   `json:"created"`
	Authorization   *enforce.Authorization      `json:"authorization,omitempty"` // that the tool declares
	Changed         time.Time                   `json:"changed"`
	Holder          string                      `json:"holder,omitzero"`   // that claimed it
	Version         string                      `json:"version,omitzero"`  // of the protocol, where nobody waits for the response
	Response        jsontext.Value              `json:"response,omitzero"` // of the server, where nobody waited
	Results         results.Rules               `json:"results,omitzero"`  // obligations on Response, which are carried out

	// Requested: the caller sent tools/request, and Why. Actors act for it.
	Requested bool     `json:"requested,omitzero"`
	Why       string   `json:"why,omitzero"`
	Actors    []string `json:"actors,omitempty"`
	Template  string   `json:"template,omitzero"` // of the approval that it waits for
	// FulfilledBy is another participant who has carried the call out, or nil; Told: the
	// caller knows what came of it.
	FulfilledBy *authzen.Subject `json:"fulfilled_by,omitempty"`
	Told        bool             `json:"told,omitzero"`

	// Not kept: who approved it, if the PDP tells, the arguments as the approver has
	// changed them, and which of them differ.
	approvers []authzen.Subject
	edited    jsontext.Value
	changed   jsonobject.Object
}

// question is what was asked about the call when it was denied.
func (r *record) question() *enforce.Question {
	return &enforce.Question{Evaluation: r.Request, Evaluations: r.Batch}
}

// belongsTo reports whether the call is a caller's.
func (r *record) belongsTo(c *enforce.Caller) bool {
	return r.Tenant == c.Tenant && r.Subject.Type == c.Subject.Type && r.Subject.ID == c.Subject.ID
}

// waits reports whether the call waits for a person. One that the server has
// answered, to be called again, waits for its caller.
func (r *record) waits() bool { return r.State == waiting && r.Rounds == 0 }

// ended reports whether nothing will become of the call any more.
func (r *record) ended() bool { return r.State == done || r.State == unknown || r.State == refused }

// keyOf names what a caller calls, or requests.
func keyOf(c *enforce.Caller, digest string, requested bool) string {
	if requested {
		digest = wire.MethodToolsRequest + " " + digest
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", c.Tenant, c.Subject.Type, c.Subject.ID, digest))
	return hex.EncodeToString(sum[:])
}

func (r *record) key() string {
	return keyOf(&enforce.Caller{Tenant: r.Tenant, Subject: r.Subject}, r.Digest, r.Requested)
}

// owner is the caller, as a key of counts.
func (r *record) owner() string {
	return strconv.Quote(r.Tenant) + strconv.Quote(r.Subject.Type) + strconv.Quote(r.Subject.ID)
}

var (
	bucketCalls   = []byte("calls")
	bucketCurrent = []byte("current")

	errMoved = errors.New("the call is in another state by now")
)

// A store keeps calls on disk, sealed: their arguments may hold secrets, and have
// to be kept as they are to be carried out.
type store struct {
	db  *boltfile.File
	key *seal.Key
	now func() time.Time
}

func openStore(file string, key *seal.Key, now func() time.Time) (*store, error) {
	db, err := boltfile.Open(file, bucketCalls, bucketCurrent)
	if err != nil {
		return nil, err
	}
	return &store{db, key, now}, nil
}

// byHandle returns a call, or nil.
func (s *store) byHandle(handle string) (r *record, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		r, err = s.read(tx, []byte(handle))
		return err
	})
	return r, err
}

// current returns the last call of that key, or nil.
func (s *store) current(key string) (r *record, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		handle := tx.Bucket(bucketCurrent).Get([]byte(key))
		if handle == nil {
			return nil
		}
		r, err = s.read(tx, handle)
		return err
	})
	return r, err
}

// sealRecord is what records are sealed for.
const sealRecord = "record"

func (s *store) read(tx *bbolt.Tx, handle []byte) (*record, error) {
	text := tx.Bucket(bucketCalls).Get(handle)
	if text == nil {
		return nil, nil
	}
	r := new(record)
	var err error
	if text[0] == '{' { // of a version that did not seal
		err = json.Unmarshal(text, r)
	} else {
		err = s.key.Open(sealRecord, string(text), r)
	}
	if errors.Is(err, seal.ErrSealed) {
		return nil, fmt.Errorf("read call %s: %s is sealed with another key: restore seal.key, or remove both files and request the waiting approvals again", handle, s.db.Path())
	}
	if err != nil {
		return nil, fmt.Errorf("read call %s: %w", handle, err)
	}
	return r, nil
}

func (s *store) write(tx *bbolt.Tx, r *record) error {
	text, err := s.key.Seal(sealRecord, r)
	if err != nil {
		return fmt.Errorf("write call %s: %w", r.Handle, err)
	}
	return tx.Bucket(bucketCalls).Put([]byte(r.Handle), []byte(text))
}

// add keeps a call about which nobody has been asked yet. It fails with errMoved
// where the last such call is no longer that of the handle was: another process
// was faster. It fails with errTooMany at a limit.
func (s *store) add(r *record, was string, limits quotas) error {
	r.State, r.Created, r.Changed = asking, s.now(), s.now()
	return s.db.Update(func(tx *bbolt.Tx) error {
		if is := tx.Bucket(bucketCurrent).Get([]byte(r.key())); string(is) != was {
			return errMoved
		}
		if err := limits.check(s, tx, r.owner()); err != nil {
			return err
		}
		if err := tx.Bucket(bucketCurrent).Put([]byte(r.key()), []byte(r.Handle)); err != nil {
			return err
		}
		return s.write(tx, r)
	})
}

// move takes a call from the state and round in which it was read to another
// state, as change makes it, and returns it as it is then. It fails with errMoved
// where another was faster: of all who try, one succeeds.
func (s *store) move(was *record, to state, change func(*record)) (r *record, err error) {
	if !slices.Contains(follows[was.State], to) {
		return nil, fmt.Errorf("a call cannot go from %s to %s", was.State, to)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if r, err = s.read(tx, []byte(was.Handle)); err != nil {
			return err
		}
		if r == nil || r.State != was.State || r.Rounds != was.Rounds {
			return errMoved
		}
		r.State, r.Changed = to, s.now()
		if change != nil {
			change(r)
		}
		return s.write(tx, r)
	})
	return r, err
}

// tell notes that the caller knows what came of a call.
func (s *store) tell(handle string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		r, err := s.read(tx, []byte(handle))
		if err != nil || r == nil || r.Told {
			return err
		}
		r.Told = true
		return s.write(tx, r)
	})
}

// show notes that a client shows a call to its user, and reports whether none did
// before.
func (s *store) show(handle string) (first bool, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		r, err := s.read(tx, []byte(handle))
		if err != nil || r == nil || r.Shown {
			return err
		}
		first, r.Shown = true, true
		return s.write(tx, r)
	})
	return first, err
}

// all calls do with each call. It must not keep what it is given.
func (s *store) all(do func(*record) error) error {
	return s.db.View(func(tx *bbolt.Tx) error { return s.each(tx, do) })
}

func (s *store) each(tx *bbolt.Tx, do func(*record) error) error {
	return tx.Bucket(bucketCalls).ForEach(func(handle, _ []byte) error {
		r, err := s.read(tx, handle)
		if err != nil {
			return err
		}
		return do(r)
	})
}

// forget removes the calls of those handles.
func (s *store) forget(handles []string) error {
	if len(handles) == 0 {
		return nil
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, handle := range handles {
			r, err := s.read(tx, []byte(handle))
			if err != nil {
				return err
			}
			if r == nil {
				continue
			}
			current := tx.Bucket(bucketCurrent)
			if key := []byte(r.key()); string(current.Get(key)) == handle {
				if err := current.Delete(key); err != nil {
					return err
				}
			}
			if err := tx.Bucket(bucketCalls).Delete([]byte(handle)); err != nil {
				return err
			}
		}
		return nil
	})
}
