package pdp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A LogConfig configures the decision log. Its zero value works.
type LogConfig struct {
	SegmentBytes   int64
	SegmentAge     time.Duration
	AcceptRollback string // reason to start although the log lacks entries under its last checkpoint
	Retention      decisionlog.Retention
	CheckpointFile string // file to which checkpoints are appended, one JSON object on each line
	CheckpointURL  string // URL to which checkpoints are posted
	// CheckpointSyslog is the URL of a syslog server for checkpoints: udp, tcp or tls with a host,
	// or unix with a path.
	CheckpointSyslog string
	Mask, Unmask     []string // names of members of requests; see decisionlog.Config
}

// openLog opens the decision log.
func openLog(c Config, metrics *telemetry, readable func()) (*decisionlog.Log, error) {
	return decisionlog.Open(c.State, decisionlog.Config{
		Durability:     c.Durability,
		SegmentBytes:   c.DecisionLog.SegmentBytes,
		SegmentAge:     c.DecisionLog.SegmentAge,
		AcceptRollback: c.DecisionLog.AcceptRollback,
		Mask:           c.DecisionLog.Mask,
		Unmask:         c.DecisionLog.Unmask,
		OnCommit:       metrics.committed,
		OnReadable:     readable,
	})
}

const (
	checkpointTime    = time.Second
	checkpointEntries = 1000
	checkpointLook    = 100 * time.Millisecond
	pruneTime         = time.Minute
	sinkTime          = 5 * time.Second
)

// watchLog ends the service after a failed commit that leaves the content of the disk unknown.
func watchLog(ctx context.Context, log *decisionlog.Log) error {
	select {
	case <-log.Failed():
		return log.Err()
	case <-ctx.Done():
		return nil
	}
}

// signCheckpoints signs the head of the log at least once a second or every thousand entries, or as
// soon as the disk has finished the previous checkpoint. Decisions do not wait for it.
func signCheckpoints(ctx context.Context, log *decisionlog.Log, program *slog.Logger) error {
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	var signed int64 = -1
	var at time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-look.C:
			size := log.Head().Size
			many := signed >= 0 && size-signed >= checkpointEntries
			if size == signed || !many && now.Sub(at) < checkpointTime {
				continue
			}
			at, signed = now, size
			if _, err := log.Checkpoint(); err != nil {
				program.Error("checkpoint not published", "error", err)
				signed = -1 // retry after checkpointTime
			}
		}
	}
}

// A sink stores copies of checkpoints where the service cannot change them.
type sink struct {
	kind string // file, url or syslog
	send func(context.Context, *decisionlog.Checkpoint) error
	last atomic.Pointer[SinkStatus]
}

// A SinkStatus describes the copies of checkpoints that a sink has.
type SinkStatus struct {
	Kind    string    `json:"kind"`             // file, url or syslog
	Size    int64     `json:"size"`             // entries under the last copy
	Sent    time.Time `json:"sent,omitzero"`    // time of the last copy
	Problem string    `json:"problem,omitzero"` // why the copy after it could not be stored
}

// status returns the status of a sink.
func (s *sink) status() SinkStatus {
	if last := s.last.Load(); last != nil {
		return *last
	}
	return SinkStatus{Kind: s.kind}
}

// copy stores a copy of a checkpoint.
func (s *sink) copy(ctx context.Context, c *decisionlog.Checkpoint) error {
	err := s.send(ctx, c)
	now := SinkStatus{Kind: s.kind, Size: c.Size, Sent: time.Now().UTC()}
	if err != nil {
		now = s.status()
		now.Problem = err.Error()
	}
	s.last.Store(&now)
	return err
}

// sinks returns the configured sinks.
func (c LogConfig) sinks(client *http.Client) (all []*sink, err error) {
	if c.CheckpointFile != "" {
		all = append(all, &sink{kind: "file", send: appendTo(c.CheckpointFile)})
	}
	if c.CheckpointURL != "" {
		all = append(all, &sink{kind: "url", send: postTo(client, c.CheckpointURL)})
	}
	if c.CheckpointSyslog != "" {
		server, err := newSyslog(c.CheckpointSyslog)
		if err != nil {
			return nil, err
		}
		all = append(all, &sink{kind: "syslog", send: server.send})
	}
	return all, nil
}

// send gives the newest checkpoint to a sink whenever the sink is ready, and the head's checkpoint
// at the end. It retries a checkpoint that the sink refused.
func send(ctx context.Context, log *decisionlog.Log, to *sink, program *slog.Logger) error {
	look := time.NewTicker(checkpointTime)
	defer look.Stop()
	var sent *decisionlog.Checkpoint
	for ctx.Err() == nil {
		last := log.Published()
		select {
		case <-look.C:
		case <-ctx.Done():
			last, _ = log.Checkpoint() // signCheckpoints reports this error
		}
		if last == nil || last == sent {
			continue
		}
		if err := to.copy(context.WithoutCancel(ctx), last); err != nil {
			program.Warn("checkpoint not sent", "size", last.Size, "error", err)
			continue
		}
		sent = last
	}
	return nil
}

// A keptCheckpoint is a line of the file to which checkpoints are appended.
type keptCheckpoint struct {
	Time time.Time `json:"time"`
	decisionlog.Checkpoint
}

func appendTo(path string) func(context.Context, *decisionlog.Checkpoint) error {
	return func(_ context.Context, c *decisionlog.Checkpoint) error {
		line, err := json.Marshal(keptCheckpoint{time.Now().UTC(), *c})
		if err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.Write(append(line, '\n')); err != nil {
			return err
		}
		return file.Sync()
	}
}

func postTo(client *http.Client, url string) func(context.Context, *decisionlog.Checkpoint) error {
	return func(ctx context.Context, c *decisionlog.Checkpoint) error {
		ctx, cancel := context.WithTimeout(ctx, sinkTime)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(c.Note))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "text/plain; charset=utf-8")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			return fmt.Errorf("POST %s: %s", url, response.Status)
		}
		return nil
	}
}

// prune regularly removes entries whose retention has ended.
func prune(ctx context.Context, log *decisionlog.Log, r decisionlog.Retention, program *slog.Logger) error {
	look := time.NewTicker(pruneTime)
	defer look.Stop()
	for {
		entries, err := log.Prune(ctx, r)
		if err != nil && ctx.Err() == nil {
			program.Error("decision log not pruned", "error", err)
		}
		if entries > 0 {
			program.Info("decision log pruned", "entries", entries)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}
