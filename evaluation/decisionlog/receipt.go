package decisionlog

import "context"

// A Receipt is required to send decisions. It holds each decision as recorded. Only [Log.Record]
// makes a receipt with permits; the zero Receipt denies.
type Receipt struct{ entry *Entry }

// Record appends e as [Log.Append] does and returns the receipt for its decisions. The caller must
// not change e afterwards.
func (l *Log) Record(ctx context.Context, e *Entry) (Receipt, error) {
	if err := l.Append(ctx, e); err != nil {
		return Receipt{}, err
	}
	return Receipt{e}, nil
}

// Decision returns the recorded decision of item n of a batch, counted from 0. A single evaluation
// is item 0.
func (r Receipt) Decision(n int) bool {
	switch {
	case r.entry == nil || n < 0:
		return false
	case r.entry.Result != nil:
		return n == 0 && r.entry.Result.Decision
	}
	return n < len(r.entry.Evaluations) && r.entry.Evaluations[n].Decision
}
