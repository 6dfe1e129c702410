package decisionlog

import "context"

// A Receipt is what permits to give decisions: it says of each what was
// recorded, as durably as the log is. Only [Log.Record] makes one that says
// yes; the zero Receipt denies.
type Receipt struct{ entry *Entry }

// Record appends e as [Log.Append] does, and returns the receipt for its
// decisions, which nobody may change from then on.
func (l *Log) Record(ctx context.Context, e *Entry) (Receipt, error) {
	if err := l.Append(ctx, e); err != nil {
		return Receipt{}, err
	}
	return Receipt{e}, nil
}

// Decision returns the recorded decision of item n of a batch, from 0, or of a
// single evaluation, which is 0.
func (r Receipt) Decision(n int) bool {
	switch {
	case r.entry == nil || n < 0:
		return false
	case r.entry.Result != nil:
		return n == 0 && r.entry.Result.Decision
	}
	return n < len(r.entry.Evaluations) && r.entry.Evaluations[n].Decision
}
