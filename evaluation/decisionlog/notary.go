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
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// A notary signs for a log.
type notary struct {
	signers []note.Signer // the log's key, preceded by the old key during a change
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

// notaryOf is openNotary for a log that may not have a key yet.
func notaryOf(dir string, h Head) (*notary, error) {
	if _, err := os.Stat(filepath.Join(dir, checkpointDir)); errors.Is(err, fs.ErrNotExist) {
		if err := initKeys(dir, h); err != nil {
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

// initKeys creates a name, a key and the first checkpoint of the log in dir. The name is random and
// so unique.
func initKeys(dir string, h Head) error {
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
	_, _ = rand.Read(name) // never fails
	return hex.EncodeToString(name)
}

// Keys returns the public keys of the log, the newest last, in the format of
// golang.org/x/mod/sumdb/note: "name+hash+key". An auditor must receive them through a channel that
// the log's host does not control.
func (r *Reader) Keys() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, publicFile))
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// LastKeyChange returns the note that proves the last change of the key, as KeyChange.Checkpoint does. It
// returns "" if the key was never changed.
func (r *Reader) LastKeyChange() (string, error) {
	note, err := os.ReadFile(filepath.Join(r.dir, changeFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read key change: %w", err)
	}
	return string(note), nil
}

// openNote returns the text of a note that one of the keys has signed.
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

// A KeyChange proves that the old key vouches for the new one.
type KeyChange struct {
	Key        string `json:"key"`        // new public key
	Checkpoint string `json:"checkpoint"` // signed with both keys, over the entry that names the new one
}

// RotateKey replaces the key of the log. An entry names the new key. The checkpoint over that entry
// has signatures of both keys and is stored, so anyone who trusts the old key can trust the new
// one. RotateKey is safe during Append and Checkpoint.
func (l *Log) RotateKey(ctx context.Context) (*KeyChange, error) {
	private, public, err := note.GenerateKey(rand.Reader, l.notary.origin())
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	l.checkpointMu.Lock() // no other checkpoint may be signed over the entry
	defer l.checkpointMu.Unlock()
	keys, err := l.Keys()
	if err != nil {
		return nil, err
	}
	if err := l.recordInternal(ctx, KindAdmin, adminAction{Action: "rotate_key", Key: public}); err != nil {
		return nil, err
	}
	if err := durable.ReplaceFile(filepath.Join(l.dir, publicFile), []byte(strings.Join(append(keys, public), "\n")+"\n")); err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	both, err := l.useKey(private)
	if err != nil {
		return nil, fmt.Errorf("write signing key: %w", err)
	}
	return &KeyChange{public, both.Note}, nil
}

// useKey signs one checkpoint with the old keys and the new key. After that only the new key signs.
func (l *Log) useKey(private string) (both *Checkpoint, err error) {
	path := filepath.Join(l.dir, keyFile)
	old, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := l.signWith(private + "\n" + string(old)); err != nil {
		return nil, err
	}
	if both, err = l.publish(l.Head()); err != nil {
		return nil, err
	}
	if err := durable.ReplaceFile(filepath.Join(l.dir, changeFile), []byte(both.Note)); err != nil {
		return nil, err
	}
	return both, l.signWith(private + "\n")
}

// signWith replaces the keys that sign the log.
func (l *Log) signWith(keys string) error {
	if err := durable.ReplaceFile(filepath.Join(l.dir, keyFile), []byte(keys)); err != nil {
		return err
	}
	n, err := openNotary(l.dir)
	if err == nil {
		l.notary = n
	}
	return err
}
