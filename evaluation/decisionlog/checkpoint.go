package decisionlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The directory of the checkpoint is made with all that is in it, or not at
// all: a log that has it and lacks a file of it has lost that file.
const (
	checkpointDir = "checkpoint"
	headFile      = "checkpoint/HEAD"
	keyFile       = "checkpoint/key"
	publicFile    = "checkpoint/key.pub"
)

// PublicKeys is the file, in the log's directory, that has what [Reader.Keys]
// returns, one key a line.
const PublicKeys = publicFile

// A Checkpoint is a head that the log has signed: a note in the sense of
// golang.org/x/mod/sumdb/note whose text is a C2SP tlog-checkpoint, three
// lines with the log's name, the size and the root.
type Checkpoint struct {
	Origin string `json:"origin"`
	Head
	Note string `json:"note"` // all of it, as it was signed
}

// ParseCheckpoint returns what a signed note says, if one of the keys has
// signed it. A key is a line as [Reader.Keys] returns it.
func ParseCheckpoint(text []byte, keys []string) (*Checkpoint, error) {
	body, err := openNote(text, keys)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	lines := strings.SplitN(body, "\n", 4)
	if len(lines) < 4 {
		return nil, damaged(-1, "has a checkpoint of %d lines", len(lines)-1)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return nil, damaged(-1, "has a checkpoint of size %q", lines[1])
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return nil, damaged(-1, "has a checkpoint with the root %q", lines[2])
	}
	return &Checkpoint{Origin: lines[0], Head: Head{size, root}, Note: string(text)}, nil
}

// openNote returns the text of a signed note, if one of the keys has signed
// it.
func openNote(text []byte, keys []string) (string, error) {
	var verifiers []note.Verifier
	for _, key := range keys {
		verifier, err := note.NewVerifier(key)
		if err != nil {
			return "", fmt.Errorf("key %q: %w", key, err)
		}
		verifiers = append(verifiers, verifier)
	}
	n, err := note.Open(text, note.VerifierList(verifiers...))
	if err != nil {
		return "", damaged(-1, "has no valid signature by its key: %v", err)
	}
	return n.Text, nil
}

// A notary signs in the name of a log.
type notary struct {
	signers []note.Signer // the log's key and, while it is changed, the one before
}

// openNotary reads the key of the log in dir.
func openNotary(dir string) (*notary, error) {
	text, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	n := new(notary)
	for line := range strings.Lines(string(text)) {
		signer, err := note.NewSigner(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("read signing key: %w", err)
		}
		n.signers = append(n.signers, signer)
	}
	if len(n.signers) == 0 {
		return nil, damaged(-1, "has lost its signing key: %s is empty", keyFile)
	}
	return n, nil
}

// notaryOf is openNotary for a log that may be without a key yet.
func notaryOf(dir string, h Head) (*notary, error) {
	if _, err := os.Stat(filepath.Join(dir, checkpointDir)); errors.Is(err, fs.ErrNotExist) {
		if err := found(dir, h); err != nil {
			return nil, err
		}
	}
	return openNotary(dir)
}

func (n *notary) origin() string { return n.signers[0].Name() }

func (n *notary) sign(text string) ([]byte, error) {
	return note.Sign(&note.Note{Text: text}, n.signers...)
}

// checkpoint signs a head.
func (n *notary) checkpoint(h Head) (*Checkpoint, error) {
	text, err := n.sign(fmt.Sprintf("%s\n%d\n%s\n", n.origin(), h.Size, h.Root))
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return &Checkpoint{Origin: n.origin(), Head: h, Note: string(text)}, nil
}

// found gives the log in dir a name, a key and its first checkpoint. The name
// is no other log's.
func found(dir string, h Head) error {
	private, public, err := note.GenerateKey(rand.Reader, "policy-service/"+randomName())
	if err != nil {
		return fmt.Errorf("make signing key: %w", err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return fmt.Errorf("make signing key: %w", err)
	}
	first, err := (&notary{[]note.Signer{signer}}).checkpoint(h)
	if err != nil {
		return err
	}
	return writeDir(filepath.Join(dir, checkpointDir), map[string]string{
		"key": private + "\n", "key.pub": public + "\n", "HEAD": first.Note,
	})
}

func randomName() string {
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it does not fail
	return hex.EncodeToString(name)
}

// Keys returns the public keys of the log, the newest last, as
// golang.org/x/mod/sumdb/note has them: "name+hash+key". An auditor gets them
// on a way that the log's own host does not control.
func (r *Reader) Keys() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, publicFile))
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// LastCheckpoint returns the checkpoint that the log published last.
func (r *Reader) LastCheckpoint() (*Checkpoint, error) {
	keys, err := r.Keys()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, headFile))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return ParseCheckpoint(text, keys)
}

// heldTo checks that the log has what its last checkpoint has. A log that was
// never signed has none.
func (r *Reader) heldTo() error {
	last, err := r.LastCheckpoint()
	if err == nil {
		err = r.Continues(last.Head)
	}
	if errors.Is(err, fs.ErrNotExist) {
		var signed bool
		if signed, err = r.everSigned(); signed {
			err = damaged(-1, "has lost its checkpoint: there is no whole %s", filepath.Join(r.dir, checkpointDir))
		}
	}
	var integrity *IntegrityError
	if errors.As(err, &integrity) {
		return rollback{err}
	}
	return err
}

// everSigned reports whether the log was ever signed.
func (r *Reader) everSigned() (bool, error) {
	if _, err := os.Stat(filepath.Join(r.dir, checkpointDir)); !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	e, err := r.last().extent()
	return e.origin != "", err
}

// Continues checks that the log has every entry under an earlier head of it,
// as it was, and returns an [IntegrityError] if not. It trusts the hashes that
// are stored; [Reader.Verify] proves them.
func (r *Reader) Continues(earlier Head) error {
	now := r.Head()
	if earlier.Size > now.Size {
		return damaged(now.Size, "is missing: the log was rolled back, its checkpoint has %d entries", earlier.Size)
	}
	root, err := tlog.TreeHash(earlier.Size, r)
	if err != nil {
		return fmt.Errorf("root of the first %d entries: %w", earlier.Size, err)
	}
	if root != earlier.Root {
		return damaged(-1, "is not the one of its checkpoint: of the first %d entries it has the root %v, not %v", earlier.Size, root, earlier.Root)
	}
	return nil
}

// Checkpoint signs the head of the log and, if it is not the last that was
// signed, publishes it as the one that the log is held to from now on.
func (l *Log) Checkpoint() (*Checkpoint, error) {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	head := l.Head()
	if l.published != nil && l.published.Head == head {
		return l.published, nil
	}
	checkpoint, err := l.notary.checkpoint(head)
	if err != nil {
		return nil, err
	}
	if err := replaceFile(filepath.Join(l.dir, headFile), []byte(checkpoint.Note)); err != nil {
		return nil, fmt.Errorf("publish checkpoint: %w", err)
	}
	l.published = checkpoint
	return checkpoint, nil
}

// Published returns the checkpoint that [Log.Checkpoint] published last, or nil
// before the first.
func (l *Log) Published() *Checkpoint {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	return l.published
}

// RotateKey gives the log a new key, which from then on signs alone, and
// returns the public one. An entry names it, and the checkpoint over that
// entry is signed with the old key, too: who trusts the old can trust the new.
func (l *Log) RotateKey(ctx context.Context) (public string, err error) {
	private, public, err := note.GenerateKey(rand.Reader, l.notary.origin())
	if err != nil {
		return "", fmt.Errorf("make signing key: %w", err)
	}
	keys, err := l.Keys()
	if err != nil {
		return "", err
	}
	if err := l.admin(ctx, adminAction{Action: "rotate_key", Key: public}); err != nil {
		return "", err
	}
	if err := replaceFile(filepath.Join(l.dir, publicFile), []byte(strings.Join(append(keys, public), "\n")+"\n")); err != nil {
		return "", fmt.Errorf("write public key: %w", err)
	}
	if err := l.useKey(private); err != nil {
		return "", fmt.Errorf("write signing key: %w", err)
	}
	return public, nil
}

// useKey signs one checkpoint with the old keys and the new, and then with the
// new alone.
func (l *Log) useKey(private string) error {
	path := filepath.Join(l.dir, keyFile)
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, keys := range []string{private + "\n" + string(old), private + "\n"} {
		if err := replaceFile(path, []byte(keys)); err != nil {
			return err
		}
		n, err := openNotary(l.dir)
		if err != nil {
			return err
		}
		l.checkpointMu.Lock()
		l.notary = n
		l.checkpointMu.Unlock()
		if _, err := l.Checkpoint(); err != nil {
			return err
		}
	}
	return nil
}

// An adminAction is the request of an entry about the log itself.
type adminAction struct {
	Action     string `json:"action"`
	Key        string `json:"key,omitzero"`        // of rotate_key: the new public key
	Reason     string `json:"reason,omitzero"`     // of accept_rollback: the operator's
	Fault      string `json:"fault,omitzero"`      // of accept_rollback: what was found
	Checkpoint string `json:"checkpoint,omitzero"` // of accept_rollback: what the log was held to
}

// admin records what was done to the log itself.
func (l *Log) admin(ctx context.Context, action adminAction) error {
	return l.note(ctx, KindAdmin, action)
}

// note records something about the log itself, and returns when it is on disk
// however the log is configured.
func (l *Log) note(ctx context.Context, kind Kind, what any) error {
	request, err := json.Marshal(what)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	return l.append(ctx, &Entry{ID: id.String(), Time: l.committer.config.Now(), Kind: kind, Request: request}, true)
}

// acceptRollback goes on from what is there, on the operator's word, and keeps
// what the log was held to until now.
func (l *Log) acceptRollback(reason string, fault error) error {
	held, err := os.ReadFile(filepath.Join(l.dir, headFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	action := adminAction{Action: "accept_rollback", Reason: reason, Fault: fault.Error(), Checkpoint: strings.ToValidUTF8(string(held), "\uFFFD")}
	if err := l.admin(context.Background(), action); err != nil {
		return err
	}
	_, err = l.Checkpoint()
	return err
}
