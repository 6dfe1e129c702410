package evaluation

import "github.com/policy-service/policy-service/schemas/authzen"

// maxOffers limits the bytes of all offers in one answer. Items of a batch inherit its subject and
// context, and each offer repeats them.
const maxOffers = 256 << 10

// offersInBatch counts the offers in the answer to a batch.
type offersInBatch struct {
	bytes int
	full  bool // no more offers
}

// isFull reports whether the answer has reached the limit. A nil receiver is a single request, which has
// none.
func (o *offersInBatch) isFull() bool { return o != nil && o.full }

// add counts an offer and reports whether it fits. The first one always fits, because it is not much
// longer than the request.
func (o *offersInBatch) add(offer *authzen.AccessRequest) bool {
	if o == nil {
		return true
	}
	n := len(offer.BindingToken) + len(offer.Display) + len(offer.RequestSchemaURL) + len(offer.Template)
	if o.full = o.bytes > 0 && o.bytes+n > maxOffers; o.full {
		return false
	}
	o.bytes += n
	return true
}
