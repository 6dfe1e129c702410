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

// initKeys gives the log in dir a name, a key and its first checkpoint. The name
// is no other log's.
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

// A KeyChange is the word of an old key for a new one.
type KeyChange struct {
	Key        string `json:"key"`        // the new public key
	Checkpoint string `json:"checkpoint"` // signed with both keys, over the entry that names the new one
}

// RotateKey gives the log a new key, which from then on signs alone. An entry
// names it, and the checkpoint over that entry is signed with the old key, too,
// and kept: who trusts the old can trust the new. It may be called while
// entries are appended and checkpoints are signed.
func (l *Log) RotateKey(ctx context.Context) (*KeyChange, error) {
	private, public, err := note.GenerateKey(rand.Reader, l.notary.origin())
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	l.checkpointMu.Lock() // no checkpoint over the entry may be signed otherwise
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

// useKey signs one checkpoint with the old keys and the new, and has the new
// sign alone from then on.
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

// signWith has the log sign with other keys.
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
