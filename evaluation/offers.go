package evaluation

import "github.com/policy-service/policy-service/schemas/authzen"

// maxOffers bounds all offers of one answer, in bytes. Every item of a batch
// without a subject or a context of its own has that of the whole, and its
// offer tells of it again.
const maxOffers = 256 << 10

// An offered is how much the answer to a batch has offered.
type offersInBatch struct {
	bytes int
	full  bool // from then on nothing is offered
}

// isFull reports whether there is no room for another offer. Nil is a single
// request, which has room.
func (o *offersInBatch) isFull() bool { return o != nil && o.full }

// add reports whether an offer has room, and counts it. The first one does:
// it is not much longer than the request.
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
