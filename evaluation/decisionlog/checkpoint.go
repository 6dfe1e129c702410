package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// The directory of the checkpoint is created with all its files or not at all. If one of the files
// is missing later, the log has lost it.
const (
	checkpointDir = "checkpoint"
	headFile      = "checkpoint/HEAD"
	keyFile       = "checkpoint/key"
	publicFile    = "checkpoint/key.pub"
	changeFile    = "checkpoint/key.change" // exists after the first change of the key
)

// PublicKeys is the file in the log's directory that holds the result of [Reader.Keys], one key on
// each line.
const PublicKeys = publicFile

// A Checkpoint is a head that the log has signed. It is a note as defined by
// golang.org/x/mod/sumdb/note. The text of the note is a C2SP tlog-checkpoint: the log's name, the
// size and the root, one on each line.
type Checkpoint struct {
	Origin string `json:"origin"`
	Head
	Note string `json:"note"` // the complete signed note
}

// ParseCheckpoint returns the content of a note that one of the keys has signed. A key is a line as
// [Reader.Keys] returns it.
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

// LastCheckpoint returns the last checkpoint that the log published.
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

// checkAgainstCheckpoint checks that the log has everything under its last checkpoint. A log that
// never signed one passes.
func (r *Reader) checkAgainstCheckpoint() error {
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

// everSigned reports whether the log ever signed a checkpoint.
func (r *Reader) everSigned() (bool, error) {
	if _, err := os.Stat(filepath.Join(r.dir, checkpointDir)); !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	e, err := r.last().meta()
	return e.origin != "", err
}

// Continues checks that the log has every entry under an earlier head, unchanged. It returns an
// [IntegrityError] if not. It trusts the stored hashes, which [Reader.Verify] checks.
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

// Checkpoint signs the head of the log. It publishes the result unless the last published
// checkpoint has the same head. From then on the log must contain all entries under it.
func (l *Log) Checkpoint() (*Checkpoint, error) {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	head := l.Head()
	if l.published != nil && l.published.Head == head {
		return l.published, nil
	}
	return l.publish(head)
}

// publish signs a head and makes it the checkpoint that the log is checked against.
func (l *Log) publish(head Head) (*Checkpoint, error) {
	checkpoint, err := l.notary.checkpoint(head)
	if err != nil {
		return nil, err
	}
	if err := durable.ReplaceFile(filepath.Join(l.dir, headFile), []byte(checkpoint.Note)); err != nil {
		return nil, fmt.Errorf("publish checkpoint: %w", err)
	}
	l.published, l.publishedAt = checkpoint, l.committer.config.Now().UTC()
	return checkpoint, nil
}

// PublishedAt returns the time of the last checkpoint that this process published, or the zero time.
func (l *Log) PublishedAt() time.Time {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	return l.publishedAt
}

// Published returns the last checkpoint that [Log.Checkpoint] published, or nil before the first.
func (l *Log) Published() *Checkpoint {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	return l.published
}

// acceptRollback continues with the existing entries, as the operator asked for with a reason. It
// records the checkpoint that the log no longer satisfies.
func (l *Log) acceptRollback(reason string, fault error) error {
	held, err := os.ReadFile(filepath.Join(l.dir, headFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	action := adminAction{Action: "accept_rollback", Reason: reason, Fault: fault.Error(), Checkpoint: strings.ToValidUTF8(string(held), "\uFFFD")}
	if err := l.recordInternal(context.Background(), KindAdmin, action); err != nil {
		return err
	}
	_, err = l.Checkpoint()
	return err
}
